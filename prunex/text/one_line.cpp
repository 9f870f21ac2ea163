#include "prunex/text/one_line.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace prunex::text {

std::string one_line(std::string_view words, size_t most) {
  std::string line;
  for (const char byte : words) {
    const auto code = static_cast<unsigned char>(byte);
    const bool begins_a_character = (code & 0xC0) != 0x80;
    if (line.size() >= most && begins_a_character) return line + "...";
    if (byte == '\n') {
      line += "\\n";
    } else if (code < 0x20 || code == 0x7F) {
      line += fmt::format("\\x{:02x}", code);
    } else {
      line += byte;
    }
  }
  return line;
}

bool is_utf8(std::string_view words) {
  try {
    (void)nlohmann::json(words).dump();
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

}  // namespace prunex::text
