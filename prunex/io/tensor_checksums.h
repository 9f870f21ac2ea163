// Checksums of what a safetensors file holds, kept in its metadata.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace prunex::io {

/// Where they stand in the metadata.
constexpr const char* kChecksumsKey = "prunex.crc32";
constexpr const char* kMetadataName = "__metadata__";

/// CRC-32 by name: of every tensor, and of the rest of the metadata under kMetadataName. 8 hexadecimal digits each.
using Checksums = std::map<std::string, std::string>;

/// `head`: "NAME DTYPE SHAPE\n" as the header writes type and shape: "w F32 [2,3]\n". The values are row-major.
std::string tensor_checksum(std::string_view head, const void* values, size_t bytes);

/// Of lines KEY=VALUE, by key.
std::string metadata_checksum(const std::map<std::string, std::string>& metadata);

/// As one string, which is JSON, and back. Throws std::invalid_argument if it is something else.
std::string checksums_text(const Checksums& checksums);
Checksums parse_checksums(const std::string& text);

}  // namespace prunex::io
