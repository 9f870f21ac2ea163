#include "prunex/program/pt2/format.h"

#include <fmt/format.h>

#include <limits>
#include <stdexcept>
#include <utility>

namespace prunex::program {
namespace {

constexpr std::pair<int, at::ScalarType> kDtypes[] = {
    {1, at::kByte}, {2, at::kChar},  {3, at::kShort},  {4, at::kInt},   {5, at::kLong},
    {6, at::kHalf}, {7, at::kFloat}, {8, at::kDouble}, {12, at::kBool}, {13, at::kBFloat16}};

constexpr std::pair<int, at::MemoryFormat> kMemoryFormats[] = {{1, at::MemoryFormat::Contiguous},
                                                               {2, at::MemoryFormat::ChannelsLast},
                                                               {3, at::MemoryFormat::ChannelsLast3d},
                                                               {4, at::MemoryFormat::Preserve}};

template <class Table>
auto meaning_of(const Table& table, int64_t code, const char* message) {
  for (const auto& [known, meaning] : table) {
    if (known == code) return meaning;
  }
  throw std::invalid_argument(fmt::format(fmt::runtime(message), code));
}

template <class Table, class Meaning>
int code_of(const Table& table, Meaning meaning, const char* what, const std::string& name) {
  for (const auto& [code, known] : table) {
    if (known == meaning) return code;
  }
  throw std::invalid_argument(fmt::format("{} {} is not supported in a .pt2 file", what, name));
}

// As much of it as an error message can hold.
std::string brief(const nlohmann::json& value) {
  constexpr size_t kMost = 40;
  if (value.is_structured()) return value.type_name();
  const auto text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return text.size() > kMost ? text.substr(0, kMost) + "..." : text;
}

}  // namespace

at::ScalarType dtype_of_code(int64_t code) {
  return meaning_of(kDtypes, code,
                    "dtype {} is unknown or not supported (wanted integers, bool, float, double, half, bfloat16)");
}

int code_of_dtype(at::ScalarType dtype) {
  return code_of(kDtypes, dtype, "dtype", c10::toString(dtype));
}

at::MemoryFormat memory_format_of_code(int64_t code) {
  return meaning_of(kMemoryFormats, code, "memory format {} is unknown");
}

int code_of_memory_format(at::MemoryFormat format) {
  return code_of(kMemoryFormats, format, "memory format", std::to_string(static_cast<int>(format)));
}

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
