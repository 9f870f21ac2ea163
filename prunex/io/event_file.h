// TensorBoard's event files, as far as scalars go: TFRecord's framing around protobuf's Event.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace prunex::io {

/// What an event file begins with. `time`: seconds since 1970.
std::string event_file_head(double time);

/// Scalars of a step, by tag; they are kept in fp32.
std::string event_record(double time, int64_t step, const std::vector<std::pair<std::string, double>>& scalars);

/// The records that a file begins with, as far as they are whole and of steps up to `last`.
std::string_view events_until(std::string_view file, int64_t last);

}  // namespace prunex::io
