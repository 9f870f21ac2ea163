#include "prunex/io/tensor_checksums.h"

#include <fmt/format.h>
#include <zlib.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "prunex/text/json.h"

namespace prunex::io {
namespace {

uLong add(uLong crc, const void* data, size_t bytes) {
  return bytes == 0 ? crc : crc32_z(crc, static_cast<const Bytef*>(data), bytes);
}

std::string digits(uLong crc) {
  return fmt::format("{:08x}", crc);
}

}  // namespace

std::string tensor_checksum(std::string_view head, const void* values, size_t bytes) {
  return digits(add(add(0, head.data(), head.size()), values, bytes));
}

std::string metadata_checksum(const std::map<std::string, std::string>& metadata) {
  uLong crc = 0;
  for (const auto& [key, value] : metadata) {
    const std::string line = key + '=' + value + '\n';
    crc = add(crc, line.data(), line.size());
  }
  return digits(crc);
}

std::string checksums_text(const Checksums& checksums) {
  return nlohmann::json(checksums).dump();
}

Checksums parse_checksums(const std::string& text) {
  try {
    return text::parse_json(text).get<Checksums>();
  } catch (const nlohmann::json::exception&) {
    throw std::invalid_argument("not a list of checksums");
  }
}

}  // namespace prunex::io
