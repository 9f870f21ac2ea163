// Files of tests/data/pt2, whole, edited or cut short.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace prunex::program {

/// tests/data/pt2/NAME.pt2, made by make.py there.
std::string stored_pt2(const std::string& name);

inline constexpr const char* kModelRecord = "models/model.json";
inline constexpr const char* kWeightsRecord = "data/weights/model_weights_config.json";

/// Copies a .pt2 file and lets `edit` change its JSON record `record`.
void copy_pt2(const std::string& from, const std::string& to, const std::string& record,
              const std::function<void(nlohmann::json&)>& edit);

}  // namespace prunex::program
