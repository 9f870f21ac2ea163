// JPEG, PNG and WebP files, as bytes in memory, to RGB pixels: those of Pillow's convert("RGB").
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "prunex/data/operations.h"

namespace prunex::data {

/// An image that cannot be read, with one line that says why.
struct BrokenImage : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// More are refused before memory is taken.
inline constexpr int64_t kMostImagePixels = 100'000'000;

/// Owns its pixels, RGB.
struct DecodedImage {
  int64_t height = 0, width = 0;
  std::vector<uint8_t> pixels{};

  Picture picture() { return {pixels.data(), height, width, 3}; }
};

/// Which part of an image of this size is wanted; within it, not empty. Asked before memory is taken for pixels.
using ChooseBox = std::function<Box(int64_t height, int64_t width)>;
/// All of it.
inline Box whole_image(int64_t height, int64_t width) {
  return {.height = height, .width = width};
}

/// The part of the image that `choose` wants, which has the pixels that it has in the whole. What the bytes begin with
/// says what they are, not a name. Greyscale, CMYK and YCCK become RGB, palettes are looked up, of 16 bits per channel
/// the upper 8 are taken, transparency and orientation are ignored. Throws BrokenImage for anything else: other files,
/// damaged or truncated ones, animations, greyscale of 16 bits, more pixels than kMostImagePixels.
DecodedImage decode_image(std::string_view bytes, const ChooseBox& choose);

/// Of them JPEG alone.
DecodedImage decode_jpeg(std::string_view bytes, const ChooseBox& choose);

/// The picture, of one channel or three, as a PNG file.
std::string encode_png(const Picture& picture);

/// Throws BrokenImage if there are too many pixels, or none.
void check_image_size(int64_t height, int64_t width);

/// The box of an image that was decoded whole.
DecodedImage part_of(DecodedImage whole, const Box& box);

}  // namespace prunex::data
