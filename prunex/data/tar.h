// What lies where in a tar file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace prunex::data {

struct TarMember {
  std::string name;
  int64_t begin = 0, size = 0;  ///< of its bytes in the file
};

/// The regular files of a tar file (ustar, GNU and pax names; sizes up to 8 GiB), by reading its headers alone. Throws
/// std::invalid_argument that names the file if it is none, damaged or cut short.
std::vector<TarMember> read_tar(const std::string& path);

}  // namespace prunex::data
