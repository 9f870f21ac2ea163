#include "prunex/data/operations.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>

namespace prunex::data {
namespace {

using Levels = std::array<uint8_t, 256>;

uint8_t level_of(float value) {
  return static_cast<uint8_t>(std::clamp(value, 0.0F, 255.0F));
}

/// Every channel by a table of its own: table(channel).
template <class Table>
void look_up(const Picture& picture, const Table& table) {
  for (int64_t channel = 0; channel < picture.channels; ++channel) {
    const Levels levels = table(channel);
    uint8_t* const end = picture.pixels + picture.bytes();
    for (uint8_t* pixel = picture.pixels + channel; pixel < end; pixel += picture.channels) *pixel = levels[*pixel];
  }
}

template <class Level>
Levels table_of(const Level& level) {
  Levels levels;
  for (size_t i = 0; i < levels.size(); ++i) levels[i] = level(static_cast<float>(i));
  return levels;
}

std::array<int64_t, 256> histogram(const Picture& picture, int64_t channel) {
  std::array<int64_t, 256> counts{};
  for (int64_t i = channel; i < picture.bytes(); i += picture.channels) ++counts[picture.pixels[i]];
  return counts;
}

/// a b + c rounded once, as ATen's vectors compute it: the product of two floats is exact in double.
float multiply_add(float a, float b, float c) {
  return static_cast<float>(static_cast<double>(a) * b + c);
}

/// Luma by ITU-R 601's weights, rounded down; of one channel that channel.
float grey_of(const uint8_t* pixel, int64_t channels) {
  if (channels != 3) return pixel[0];
  return std::floor(multiply_add(pixel[2], 0.114F, multiply_add(pixel[1], 0.587F, pixel[0] * 0.2989F)));
}

/// Where every pixel of the result comes from: a point of it, counted from the middle, goes to
/// (m[0] x + m[1] y + m[2], m[3] x + m[4] y + m[5]). In fp32, as grid_sample computes it.
void warp(const Picture& picture, const std::array<double, 6>& m) {
  const std::vector<uint8_t> from(picture.pixels, picture.pixels + picture.bytes());
  const auto width = static_cast<float>(picture.width), height = static_cast<float>(picture.height);
  std::array<float, 6> scaled;
  for (size_t i = 0; i < 6; ++i) scaled[i] = static_cast<float>(m[i]) / (0.5F * (i < 3 ? width : height));
  uint8_t* out = picture.pixels;
  for (int64_t row = 0; row < picture.height; ++row) {
    const float y = static_cast<float>(row) - (height - 1) / 2;
    for (int64_t column = 0; column < picture.width; ++column, out += picture.channels) {
      const float x = static_cast<float>(column) - (width - 1) / 2;
      const float right = x * scaled[0] + y * scaled[1] + scaled[2], down = x * scaled[3] + y * scaled[4] + scaled[5];
      const float source_x = std::nearbyint(((right + 1) * width - 1) / 2);
      const float source_y = std::nearbyint(((down + 1) * height - 1) / 2);
      if (source_x < 0 || source_y < 0 || source_x >= width || source_y >= height) {
        std::memset(out, 0, static_cast<size_t>(picture.channels));
        continue;
      }
      const int64_t source = static_cast<int64_t>(source_y) * picture.width + static_cast<int64_t>(source_x);
      std::memcpy(out, from.data() + source * picture.channels, static_cast<size_t>(picture.channels));
    }
  }
}

}  // namespace

void adjust_brightness(const Picture& picture, double factor) {
  const auto ratio = static_cast<float>(factor);
  const Levels levels = table_of([&](float level) { return level_of(level * ratio); });
  look_up(picture, [&](int64_t) { return levels; });
}

void adjust_contrast(const Picture& picture, double factor) {
  double sum = 0;
  for (int64_t i = 0; i < picture.bytes(); i += picture.channels) sum += grey_of(picture.pixels + i, picture.channels);
  const auto mean = static_cast<float>(sum / static_cast<double>(picture.height * picture.width));
  const auto ratio = static_cast<float>(factor), rest = static_cast<float>(1 - factor);
  const Levels levels = table_of([&](float level) { return level_of(multiply_add(mean, rest, level * ratio)); });
  look_up(picture, [&](int64_t) { return levels; });
}

void adjust_saturation(const Picture& picture, double factor) {
  if (picture.channels != 3) return;
  const auto ratio = static_cast<float>(factor), rest = static_cast<float>(1 - factor);
  uint8_t* const end = picture.pixels + picture.bytes();
  for (uint8_t* pixel = picture.pixels; pixel < end; pixel += 3) {
    const float grey = grey_of(pixel, 3);
    for (int c = 0; c < 3; ++c) pixel[c] = level_of(multiply_add(grey, rest, pixel[c] * ratio));
  }
}

// Against the mean of 3 x 3 pixels, the middle of which counts five times; the border stays.
void adjust_sharpness(const Picture& picture, double factor) {
  const int64_t row = picture.width * picture.channels, next = picture.channels;
  if (picture.height <= 2 || picture.width <= 2) return;
  const std::vector<uint8_t> from(picture.pixels, picture.pixels + picture.bytes());
  const auto rest = static_cast<float>(1 - factor);
  for (int64_t y = 1; y + 1 < picture.height; ++y) {
    for (int64_t i = y * row + next; i < (y + 1) * row - next; ++i) {
      int sum = 4 * from[i];
      for (int64_t line = i - row; line <= i + row; line += row)
        sum += from[line - next] + from[line] + from[line + next];
      const auto level = static_cast<float>(from[i]);
      const float blurred = std::nearbyint(static_cast<float>(sum) / 13.0F);
      picture.pixels[i] = level_of(multiply_add(blurred - level, rest, level));
    }
  }
}

void posterize(const Picture& picture, int64_t bits) {
  const auto mask = static_cast<uint8_t>(0xff << (8 - bits));
  for (int64_t i = 0; i < picture.bytes(); ++i) picture.pixels[i] &= mask;
}

void solarize(const Picture& picture, double threshold) {
  const auto from = static_cast<float>(threshold);
  const Levels levels =
      table_of([&](float level) { return static_cast<uint8_t>(level >= from ? 255 - level : level); });
  look_up(picture, [&](int64_t) { return levels; });
}

void autocontrast(const Picture& picture) {
  look_up(picture, [&](int64_t channel) {
    const auto counts = histogram(picture, channel);
    const auto is_there = [](int64_t count) { return count > 0; };
    const auto least = static_cast<float>(std::find_if(counts.begin(), counts.end(), is_there) - counts.begin());
    const auto most = static_cast<float>(counts.rend() - std::find_if(counts.rbegin(), counts.rend(), is_there) - 1);
    if (least == most) return table_of([](float level) { return static_cast<uint8_t>(level); });
    const float scale = (most - least) * (1.0F / 255.0F);
    return table_of([&](float level) { return level_of((level - least) / scale); });
  });
}

// Pillow's scheme: the pixels below a level, divided by what a level would have if all had as many.
void equalize(const Picture& picture) {
  look_up(picture, [&](int64_t channel) {
    const auto counts = histogram(picture, channel);
    size_t last = 255;
    while (counts[last] == 0) --last;
    const int64_t step = (picture.height * picture.width - counts[last]) / 255;
    Levels levels = table_of([](float level) { return static_cast<uint8_t>(level); });
    int64_t below = 0;
    for (size_t i = 0; i < levels.size() && step > 0; below += counts[i++]) {
      levels[i] = static_cast<uint8_t>(std::min<int64_t>((below + step / 2) / step, 255));
    }
    return levels;
  });
}

void shear(const Picture& picture, double x, double y) {
  // The inverse of (1, -x; -y, 1 + x y) in torchvision's order, about the upper left corner.
  const double left = -0.5 * static_cast<double>(picture.width), top = -0.5 * static_cast<double>(picture.height);
  const double a = 1, b = -x, c = -y, d = 1 + x * y;
  std::array<double, 6> inverse{d, -b, 0, -c, a, 0};
  inverse[2] = left - inverse[0] * left - inverse[1] * top;
  inverse[5] = top - inverse[3] * left - inverse[4] * top;
  warp(picture, inverse);
}

void translate(const Picture& picture, int64_t right, int64_t down) {
  warp(picture, {1, 0, -static_cast<double>(right), 0, 1, -static_cast<double>(down)});
}

void rotate(const Picture& picture, double degrees) {
  if (degrees == 0) return;
  const double radians = -degrees * std::numbers::pi / 180;
  warp(picture, {std::cos(radians), std::sin(radians), 0, -std::sin(radians), std::cos(radians), 0});
}

void erase(const Picture& picture, const Box& box, const std::vector<uint8_t>& value) {
  for (int64_t y = box.top; y < box.top + box.height; ++y) {
    uint8_t* pixel = picture.pixels + (y * picture.width + box.left) * picture.channels;
    for (int64_t x = 0; x < box.width; ++x, pixel += picture.channels) {
      std::memcpy(pixel, value.data(), static_cast<size_t>(picture.channels));
    }
  }
}

void flip(const Picture& picture) {
  const int64_t row = picture.width * picture.channels, next = picture.channels;
  for (uint8_t* begin = picture.pixels; begin != picture.pixels + picture.bytes(); begin += row) {
    for (uint8_t *left = begin, *right = begin + row - next; left < right; left += next, right -= next) {
      std::swap_ranges(left, left + next, right);
    }
  }
}

void resize(const Picture& picture, const Box& box, const Picture& out) {
  const c10::InferenceMode without_autograd;
  at::Tensor part;
  if (box.height == picture.height && box.width == picture.width) {
    part = at::from_blob(picture.pixels, {1, picture.height, picture.width, picture.channels}, at::kByte);
  } else {
    part = at::empty({1, box.height, box.width, picture.channels}, at::kByte);
    const int64_t row = box.width * picture.channels;
    for (int64_t y = 0; y < box.height; ++y) {
      std::memcpy(part.data_ptr<uint8_t>() + y * row,
                  picture.pixels + ((box.top + y) * picture.width + box.left) * picture.channels,
                  static_cast<size_t>(row));
    }
  }
  if (box.height == out.height && box.width == out.width) {
    std::memcpy(out.pixels, part.const_data_ptr(), static_cast<size_t>(out.bytes()));
    return;
  }
  const at::Tensor scaled = at::_upsample_bilinear2d_aa(part.permute({0, 3, 1, 2}), {out.height, out.width}, false)
                                .contiguous(at::MemoryFormat::ChannelsLast);
  std::memcpy(out.pixels, scaled.const_data_ptr(), static_cast<size_t>(out.bytes()));
}

}  // namespace prunex::data
