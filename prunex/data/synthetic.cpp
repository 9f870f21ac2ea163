#include "prunex/data/load.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <stdexcept>

#include "prunex/data/random.h"

namespace prunex::data {
namespace {

// Everything is integer arithmetic: no rounding, hence equal bytes on every platform.
constexpr int64_t kSide = 32;
constexpr int64_t kUnit = 16;  // lengths are in 1/16 pixel
constexpr int64_t kClasses = 10;
constexpr int64_t kOne = 256;  // 1.0 of the tilt

enum Split : uint64_t { kTrain = 1, kTest = 2 };
enum Kind : int64_t { kDisc, kRing, kSquare, kFrame, kTriangle, kPlus, kCross, kRows, kColumns, kChecks };

using Colour = std::array<int64_t, 3>;

/// What an image shows, as drawn by chance.
struct Scene {
  Kind kind;
  int64_t x, y;  // centre
  int64_t radius;
  int64_t tilt;    // slope of the x axis, 1/256
  int64_t period;  // of stripes and checks
  int64_t phase;
  bool round;  // outline of stripes and checks
  Colour ink, paper;
  Colour light_x, light_y;  // change of brightness per pixel, 1/16 grey level
  int64_t noise;            // largest deviation, grey levels
};

Colour draw_colour(Random& random) {
  return {random.below(256), random.below(256), random.below(256)};
}

int64_t distance(const Colour& a, const Colour& b) {
  return std::abs(a[0] - b[0]) + std::abs(a[1] - b[1]) + std::abs(a[2] - b[2]);
}

Colour draw_light(Random& random) {
  return {random.between(-24, 24), random.between(-24, 24), random.between(-24, 24)};
}

Scene draw_scene(Kind kind, Random& random) {
  Scene scene{.kind = kind,
              .x = random.between(12 * kUnit, 20 * kUnit),
              .y = random.between(12 * kUnit, 20 * kUnit),
              .radius = random.between(7 * kUnit, 12 * kUnit),
              .tilt = random.between(-48, 48),
              .period = random.between(3 * kUnit, 5 * kUnit),
              .phase = random.below(10 * kUnit),
              .round = random.below(2) == 1,
              .ink = {},
              .paper = draw_colour(random),
              .light_x = draw_light(random),
              .light_y = draw_light(random),
              .noise = random.between(4, 40)};
  do {
    scene.ink = draw_colour(random);
  } while (distance(scene.ink, scene.paper) < 140);
  return scene;
}

// Of two neighbouring stripes, whether the one at `position` is inked.
bool striped(int64_t position, const Scene& scene) {
  constexpr int64_t kFar = 1 << 20;  // keeps the division away from negative numbers
  return ((position + scene.phase + kFar * scene.period) / scene.period) % 2 == 0;
}

bool in_plus(int64_t x, int64_t y, int64_t radius) {
  return std::min(x, y) * 10 <= radius * 3 && std::max(x, y) <= radius;
}

bool in_texture(int64_t x, int64_t y, const Scene& scene) {
  int64_t r = scene.radius;
  if (scene.round ? x * x + y * y > r * r : std::max(std::abs(x), std::abs(y)) > r) return false;
  if (scene.kind == kRows) return striped(y, scene);
  if (scene.kind == kColumns) return striped(x, scene);
  return striped(x, scene) != striped(y, scene);
}

// x, y: from the centre of the shape, along its own axes.
bool inked(int64_t x, int64_t y, const Scene& scene) {
  int64_t r = scene.radius;
  int64_t across = std::abs(x);
  int64_t along = std::abs(y);
  int64_t squared = x * x + y * y;
  switch (scene.kind) {
    case kDisc:
      return squared <= r * r;
    case kRing:
      return squared <= r * r && 4 * squared > r * r;
    case kSquare:
      return std::max(across, along) * 8 <= r * 7;
    case kFrame:
      return std::max(across, along) * 8 <= r * 7 && std::max(across, along) * 2 > r;
    case kTriangle:
      return y <= r * 3 / 4 && across * 8 <= (y + r) * 5;
    case kPlus:
      return in_plus(across, along, r);
    case kCross:  // the plus, turned by an eighth and brought back to size by 3/4 of its diagonal
      return in_plus(std::abs(x + y) * 3 / 4, std::abs(x - y) * 3 / 4, r);
    default:
      return in_texture(x, y, scene);
  }
}

// Of the four quarters of a pixel, how many are inked.
int64_t coverage(int64_t column, int64_t row, const Scene& scene) {
  int64_t covered = 0;
  for (int64_t quarter = 0; quarter < 4; ++quarter) {
    int64_t x = column * kUnit + (quarter % 2 == 0 ? 4 : 12) - scene.x;
    int64_t y = row * kUnit + (quarter / 2 == 0 ? 4 : 12) - scene.y;
    covered += inked(x + y * scene.tilt / kOne, y - x * scene.tilt / kOne, scene);
  }
  return covered;
}

int64_t draw_noise(int64_t largest, Random& random) {
  return (random.between(-largest, largest) + random.between(-largest, largest)) / 2;
}

void paint(const Scene& scene, Random& random, uint8_t* out) {
  for (int64_t pixel = 0; pixel < kSide * kSide; ++pixel) {
    int64_t column = pixel % kSide;
    int64_t row = pixel / kSide;
    int64_t ink = coverage(column, row, scene);
    for (size_t c = 0; c < 3; ++c) {
      int64_t light = (scene.light_x[c] * (column - 16) + scene.light_y[c] * (row - 16)) / 16;
      int64_t colour = (ink * scene.ink[c] + (4 - ink) * scene.paper[c]) / 4;
      *out++ = static_cast<uint8_t>(std::clamp<int64_t>(colour + light + draw_noise(scene.noise, random), 0, 255));
    }
  }
}

// Small blots of any colour, the scene's own included, on top of the shape or beside it.
void add_clutter(Random& random, uint8_t* image) {
  for (int64_t blots = random.between(0, 4); blots > 0; --blots) {
    Colour colour = draw_colour(random);
    int64_t size = random.between(2, 5);
    int64_t left = random.below(kSide - size);
    int64_t top = random.below(kSide - size);
    for (int64_t i = 0; i < size * size; ++i) {
      uint8_t* pixel = image + ((top + i / size) * kSide + left + i % size) * 3;
      std::copy(colour.begin(), colour.end(), pixel);
    }
  }
}

Dataset draw(int64_t size, uint64_t seed, Split split) {
  at::Tensor pixels = at::empty({size, kSide, kSide, 3}, at::kByte);
  at::Tensor labels = at::arange(size, at::kLong).remainder_(kClasses);
  for (int64_t i = 0; i < size; ++i) {
    Random random({seed, split, static_cast<uint64_t>(i)});
    uint8_t* image = pixels.data_ptr<uint8_t>() + i * kSide * kSide * 3;
    paint(draw_scene(static_cast<Kind>(i % kClasses), random), random, image);
    add_clutter(random, image);
  }
  return {.name = "synthetic",
          .images = pixels.permute({0, 3, 1, 2}),
          .labels = labels,
          .classes = kClasses,
          .mean = {},
          .std = {},
          .augmentation = {.padding = 2, .flip = true},
          .class_names = {"disc", "ring", "square", "frame", "triangle", "plus", "cross", "horizontal stripes",
                          "vertical stripes", "checks"}};
}

}  // namespace

Datasets make_synthetic(int64_t samples, uint64_t seed) {
  if (samples < kClasses) {
    throw std::invalid_argument(fmt::format("`samples`: got {}, wanted at least {}", samples, kClasses));
  }
  Datasets result{.train = draw(samples, seed, kTrain), .test = draw(std::max(samples / 5, kClasses), seed, kTest)};
  set_statistics(result.train);
  result.test.mean = result.train.mean;
  result.test.std = result.train.std;
  return result;
}

}  // namespace prunex::data
