#include "prunex/program/pt2_codes.h"

#include <fmt/format.h>

#include <array>
#include <stdexcept>
#include <utility>

namespace prunex::program {
namespace {

constexpr std::array<std::pair<int, at::ScalarType>, 10> kDtypes{{{1, at::kByte},
                                                                  {2, at::kChar},
                                                                  {3, at::kShort},
                                                                  {4, at::kInt},
                                                                  {5, at::kLong},
                                                                  {6, at::kHalf},
                                                                  {7, at::kFloat},
                                                                  {8, at::kDouble},
                                                                  {12, at::kBool},
                                                                  {13, at::kBFloat16}}};

constexpr std::array<std::pair<int, at::MemoryFormat>, 4> kMemoryFormats{{{1, at::MemoryFormat::Contiguous},
                                                                          {2, at::MemoryFormat::ChannelsLast},
                                                                          {3, at::MemoryFormat::ChannelsLast3d},
                                                                          {4, at::MemoryFormat::Preserve}}};

}  // namespace

at::ScalarType dtype_of_code(int64_t code) {
  for (const auto& [known, dtype] : kDtypes) {
    if (known == code) return dtype;
  }
  throw std::invalid_argument(
      fmt::format("dtype {} is unknown or not supported (wanted integers, bool, float, double, half, bfloat16)", code));
}

int code_of_dtype(at::ScalarType dtype) {
  for (const auto& [code, known] : kDtypes) {
    if (known == dtype) return code;
  }
  throw std::invalid_argument(fmt::format("dtype {} is not supported in a .pt2 file", c10::toString(dtype)));
}

at::MemoryFormat memory_format_of_code(int64_t code) {
  for (const auto& [known, format] : kMemoryFormats) {
    if (known == code) return format;
  }
  throw std::invalid_argument(fmt::format("memory format {} is unknown", code));
}

int code_of_memory_format(at::MemoryFormat format) {
  for (const auto& [code, known] : kMemoryFormats) {
    if (known == format) return code;
  }
  throw std::invalid_argument(fmt::format("memory format {} is unknown", static_cast<int>(format)));
}

}  // namespace prunex::program
