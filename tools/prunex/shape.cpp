#include "tools/prunex/shape.h"

#include <fmt/format.h>

#include <charconv>
#include <stdexcept>

namespace prunex::tools {

std::vector<int64_t> parse_shape(const std::string& option, const std::string& text) {
  std::vector<int64_t> shape;
  const char* at = text.data();
  const char* end = at + text.size();
  while (true) {
    int64_t extent = 0;
    const auto [next, error] = std::from_chars(at, end, extent);
    if (error != std::errc() || extent < 1 || (next != end && *next != 'x')) {
      throw std::invalid_argument(fmt::format("{}: got '{}', wanted a shape such as 1x3x224x224", option, text));
    }
    shape.push_back(extent);
    if (next == end) return shape;
    at = next + 1;
  }
}

}  // namespace prunex::tools
