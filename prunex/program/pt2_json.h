// What a file's JSON must be where it is read: nlohmann-json itself rounds, wraps and looks past the end.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace prunex::program {

/// Throws std::invalid_argument unless it is an integer of 64 bits.
int64_t to_integer(const nlohmann::json& value);

/// A size, an axis' stride, a position: not negative.
int64_t to_size(const nlohmann::json& value);

/// An object that says by its only key what it holds.
struct Tagged {
  const std::string& tag;
  const nlohmann::json& body;
};
/// Throws std::invalid_argument unless `value` is an object with one key.
Tagged to_tagged(const nlohmann::json& value);

}  // namespace prunex::program
