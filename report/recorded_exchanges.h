// Exchanges in a record that is kept: small, one list per quantity.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "report/run.h"

namespace prunex::report {

/// More are not read, from any file.
inline constexpr size_t kMostExchanges = 1'000'000;

/// Lists by quantity, a single number for one that never changes; four digits of what was measured. Without learning
/// rates, and without residuals by tensor and by rank.
nlohmann::ordered_json record_of(const std::vector<Exchange>& exchanges);

/// What record_of made. Throws std::exception if it is something else.
std::vector<Exchange> exchanges_of(const nlohmann::json& record);

}  // namespace prunex::report
