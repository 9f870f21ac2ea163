// What augmentation does to pixels, given its numbers: torchvision.transforms.v2.functional's operations on uint8.
#pragma once

#include <cstdint>
#include <vector>

namespace prunex::data {

/// Pixels of one image, borrowed: height x width x channels without gaps.
struct Picture {
  uint8_t* pixels = nullptr;
  int64_t height = 0, width = 0, channels = 0;

  int64_t bytes() const { return height * width * channels; }
};

/// A rectangle of an image.
struct Box {
  int64_t top = 0, left = 0, height = 0, width = 0;
};

// All change the picture in place. Grey levels are torchvision's, or one beside them where float sums of another order
// round otherwise; the nearest pixel of affine() and rotate() may be the neighbour where two are equally near.

/// factor >= 0 of all four; 1 leaves the picture as it is. Saturation leaves one channel as it is.
void adjust_brightness(const Picture& picture, double factor);
void adjust_contrast(const Picture& picture, double factor);
void adjust_saturation(const Picture& picture, double factor);
void adjust_sharpness(const Picture& picture, double factor);

/// Keeps the `bits` upper bits of a level, 0 … 8.
void posterize(const Picture& picture, int64_t bits);
/// Inverts levels from `threshold` on, 0 … 255.
void solarize(const Picture& picture, double threshold);
void autocontrast(const Picture& picture);
void equalize(const Picture& picture);

/// Nearest pixels, black outside. Shears are tangents about the upper left corner; shifts count pixels.
void shear(const Picture& picture, double x, double y);
void translate(const Picture& picture, int64_t right, int64_t down);
/// By degrees against the clock about the middle.
void rotate(const Picture& picture, double degrees);

/// `value` has a level per channel.
void erase(const Picture& picture, const Box& box, const std::vector<uint8_t>& value);
void flip(const Picture& picture);

/// The box of the picture, scaled by anti-aliased bilinear interpolation into `out`. Levels are Pillow's or one beside,
/// rarely two.
void resize(const Picture& picture, const Box& box, const Picture& out);

}  // namespace prunex::data
