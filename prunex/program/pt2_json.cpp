#include "prunex/program/pt2_json.h"

#include <fmt/format.h>

#include <limits>
#include <stdexcept>

namespace prunex::program {
namespace {

// As much of it as an error message can hold.
std::string brief(const nlohmann::json& value) {
  constexpr size_t kMost = 40;
  if (value.is_structured()) return value.type_name();
  const auto text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return text.size() > kMost ? text.substr(0, kMost) + "..." : text;
}

}  // namespace

int64_t to_integer(const nlohmann::json& value) {
  const bool fits = !value.is_number_unsigned() || value.get<uint64_t>() <= std::numeric_limits<int64_t>::max();
  if (value.is_number_integer() && fits) return value.get<int64_t>();
  throw std::invalid_argument(fmt::format("got {}, wanted an integer of 64 bits", brief(value)));
}

int64_t to_size(const nlohmann::json& value) {
  const auto size = to_integer(value);
  if (size >= 0) return size;
  throw std::invalid_argument(fmt::format("got the size {}, wanted none below 0", size));
}

Tagged to_tagged(const nlohmann::json& value) {
  if (value.is_object() && value.size() == 1) return {value.begin().key(), value.begin().value()};
  throw std::invalid_argument(fmt::format("got {}, wanted an object with one key", brief(value)));
}

}  // namespace prunex::program
