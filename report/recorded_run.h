// What a comparison's record keeps of a run.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "report/run.h"

namespace prunex::report {

/// The options that an entry of compare.json has under a key; empty if it has none. This and the next throw
/// std::invalid_argument that says where in the entry something is missing or of another type.
std::map<std::string, std::string> options_under(const char* key, const nlohmann::json& entry);
/// A run of which only its entry in COMPARISON/compare.json is left: summary, exchanges, kept units. A broken summary
/// is named in `problems`.
Run recorded_run(const std::string& comparison, const nlohmann::json& entry);

/// Lists by quantity, a single number for one that never changes; four digits of what was measured. Without learning
/// rates, and without residuals by tensor and by rank.
nlohmann::ordered_json record_of(const std::vector<Exchange>& exchanges);

/// What record_of made. Throws std::exception if it is something else.
std::vector<Exchange> exchanges_of(const nlohmann::json& record);

}  // namespace prunex::report
