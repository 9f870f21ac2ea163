// Small image files, encoded by the libraries that decode them elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace prunex::data {

struct JpegForm {
  int channels = 3;          ///< 1 grey, 3 RGB, 4 CMYK
  int across = 2, down = 2;  ///< luma samples per chroma sample
  bool progressive = false;
};

/// Height x width x channels.
std::string jpeg_of(const std::vector<uint8_t>& pixels, int height, int width, const JpegForm& form = {});
/// RGB.
std::string png_of(const std::vector<uint8_t>& pixels, int height, int width);

/// A member of a tar file as POSIX' ustar has it; type 'x' is a header of pax records.
std::string tar_member(const std::string& name, const std::string& bytes, char type = '0');

/// Smooth waves with a little noise, another one for each seed.
std::vector<uint8_t> waves(int height, int width, int channels, int seed = 0);

}  // namespace prunex::data
