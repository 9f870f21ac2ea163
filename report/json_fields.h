// Fields of JSON files, and errors that say where they are.
#pragma once

#include <cstdint>
#include <exception>
#include <fstream>
#include <functional>
#include <istream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>

#include "prunex/text/json.h"

namespace prunex::report {

/// The call's result. Throws std::invalid_argument "PLACE: REASON" for whatever the call throws.
auto within(const std::string& place, const auto& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    throw std::invalid_argument(place + ": " + text::reason(error));
  }
}

/// All of the file, as text::parse_json.
nlohmann::json read_json(std::istream& file);

/// A file that is read whole may have so many bytes, and so many a line of one that is read by lines.
inline constexpr uintmax_t kLargestFile = 64'000'000, kLargestLine = 16'000'000;
/// Throws std::invalid_argument that says what it is instead of a regular file of at most `most` bytes.
std::ifstream open_bounded(const std::string& path, uintmax_t most = kLargestFile);

/// What must be there. Throws std::invalid_argument "KEY: missing".
const nlohmann::json& member(const nlohmann::json& object, const char* key);
/// Likewise; "KEY: REASON" if it is of another type.
template <class T>
T required(const nlohmann::json& object, const char* key) {
  const auto& value = member(object, key);
  return within(key, [&] { return value.get<T>(); });
}

/// A number as a whole one. Throws std::invalid_argument if it is none, or beyond 2^53.
int64_t whole_number(const nlohmann::json& value);
/// What must be there as a whole number; "KEY: REASON".
int64_t required_whole(const nlohmann::json& object, const char* key);

/// Throws std::invalid_argument "entry N: REASON", counted from 1, for what `use` throws of an entry.
void each(const nlohmann::json& list, const std::function<void(const nlohmann::json&)>& use);
/// Of the list under a key, which must be there.
void each(const nlohmann::json& object, const char* key, const std::function<void(const nlohmann::json&)>& use);

/// What may be missing, or be of another type: then nothing, zero or "".
std::optional<double> maybe(const nlohmann::json& object, const char* key);
double number(const nlohmann::json& object, const char* key);
/// Throws std::invalid_argument "KEY: REASON" for a number beyond 2^53.
int64_t whole(const nlohmann::json& object, const char* key);
std::string word(const nlohmann::json& object, const char* key);
/// What may be missing: then an empty object.
nlohmann::json part(const nlohmann::json& object, const char* key);

}  // namespace prunex::report
