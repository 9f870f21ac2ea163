#include "prunex/data/augment.h"

#include <algorithm>
#include <cmath>

namespace prunex::data {
namespace {

constexpr uint64_t kAugmentation = 2;  // a stream beside that of Loader's order
constexpr int kTries = 10;

/// torch.linspace(begin, end, 31)[i] in fp32: from the nearer end.
double linspace(float begin, float end, int64_t i) {
  const float step = (end - begin) / static_cast<float>(kMostMagnitude);
  return i < (kMostMagnitude + 1) / 2 ? begin + step * static_cast<float>(i)
                                      : end - step * static_cast<float>(kMostMagnitude - i);
}

double shear_strength(int64_t i, int64_t, int64_t) {
  return linspace(0, 0.3F, i);
}
double blend_strength(int64_t i, int64_t, int64_t) {
  return linspace(0, 0.9F, i);
}
double no_strength(int64_t, int64_t, int64_t) {
  return 0;
}
float most_shift(int64_t side) {
  return static_cast<float>(150.0 / 331.0 * static_cast<double>(side));
}

const RandOperation kRandOperations[] = {
    {"Identity", false, no_strength, [](const Picture&, double) {}},
    {"ShearX", true, shear_strength, [](const Picture& picture, double s) { shear(picture, s, 0); }},
    {"ShearY", true, shear_strength, [](const Picture& picture, double s) { shear(picture, 0, s); }},
    {"TranslateX", true, [](int64_t i, int64_t, int64_t width) { return linspace(0, most_shift(width), i); },
     [](const Picture& picture, double s) { translate(picture, static_cast<int64_t>(s), 0); }},
    {"TranslateY", true, [](int64_t i, int64_t height, int64_t) { return linspace(0, most_shift(height), i); },
     [](const Picture& picture, double s) { translate(picture, 0, static_cast<int64_t>(s)); }},
    {"Rotate", true, [](int64_t i, int64_t, int64_t) { return linspace(0, 30, i); }, rotate},
    {"Brightness", true, blend_strength, [](const Picture& picture, double s) { adjust_brightness(picture, 1 + s); }},
    {"Color", true, blend_strength, [](const Picture& picture, double s) { adjust_saturation(picture, 1 + s); }},
    {"Contrast", true, blend_strength, [](const Picture& picture, double s) { adjust_contrast(picture, 1 + s); }},
    {"Sharpness", true, blend_strength, [](const Picture& picture, double s) { adjust_sharpness(picture, 1 + s); }},
    {"Posterize", false,
     [](int64_t i, int64_t, int64_t) {
       return static_cast<double>(std::nearbyint(8 - static_cast<float>(i) / (kMostMagnitude / 4.0F)));
     },
     [](const Picture& picture, double s) { posterize(picture, static_cast<int64_t>(s)); }},
    {"Solarize", false, [](int64_t i, int64_t, int64_t) { return linspace(1, 0, i); },
     [](const Picture& picture, double s) { solarize(picture, 255 * s); }},
    {"AutoContrast", false, no_strength, [](const Picture& picture, double) { autocontrast(picture); }},
    {"Equalize", false, no_strength, [](const Picture& picture, double) { equalize(picture); }},
};

/// ColorJitter's: factors from 1 - strength to 1 + strength, in an order of their own.
void jitter(const Picture& picture, double strength, Random& random) {
  std::vector<int64_t> order{0, 1, 2};
  random.shuffle(order);
  double factors[3];
  for (double& factor : factors) factor = random.uniform(std::max(0.0, 1 - strength), 1 + strength);
  constexpr void (*kAdjust[])(const Picture&, double) = {adjust_brightness, adjust_contrast, adjust_saturation};
  for (const int64_t which : order) kAdjust[which](picture, factors[which]);
}

void rand_augment(const Picture& picture, const Augmentation& augmentation, Random& random) {
  const auto all = rand_operations();
  for (int64_t i = 0; i < augmentation.operations; ++i) {
    const RandOperation& operation = all[static_cast<size_t>(random.below(static_cast<int64_t>(all.size())))];
    const double strength = operation.strength(augmentation.magnitude, picture.height, picture.width);
    const bool against = operation.is_signed && random.below(2) == 1;
    operation.apply(picture, against ? -strength : strength);
  }
}

int64_t rounded(double number) {
  return static_cast<int64_t>(std::nearbyint(number));
}

/// RandomErasing's: 2 to 33 % of the area, sides of 0.3 to 3.3; nothing if ten tries do not fit.
void erase_some(const Picture& picture, double share, const std::vector<uint8_t>& mean, Random& random) {
  if (random.uniform(0, 1) >= share) return;
  for (int i = 0; i < kTries; ++i) {
    const double area = static_cast<double>(picture.height * picture.width) * random.uniform(0.02, 0.33);
    const double ratio = std::exp(random.uniform(std::log(0.3), std::log(3.3)));
    Box box{.height = rounded(std::sqrt(area * ratio)), .width = rounded(std::sqrt(area / ratio))};
    if (box.height >= picture.height || box.width >= picture.width) continue;
    box.top = random.below(picture.height - box.height + 1);
    box.left = random.below(picture.width - box.width + 1);
    return erase(picture, box, mean);
  }
}

}  // namespace

std::span<const RandOperation> rand_operations() {
  return kRandOperations;
}

Draws augmentation_draws(const Augmentation& augmentation, uint64_t seed, int64_t epoch, int64_t position) {
  Random random({seed, kAugmentation, static_cast<uint64_t>(epoch), static_cast<uint64_t>(position)});
  Draws draws;
  draws.down = random.between(-augmentation.padding, augmentation.padding);
  draws.right = random.between(-augmentation.padding, augmentation.padding);
  draws.flip = augmentation.flip && random.below(2) == 1;
  draws.rest = random;
  return draws;
}

Box resized_crop_box(int64_t height, int64_t width, Random& random) {
  constexpr double kLeast = 3.0 / 4, kMost = 4.0 / 3;
  const auto h = static_cast<double>(height), w = static_cast<double>(width);
  for (int i = 0; i < kTries; ++i) {
    const double area = h * w * random.uniform(0.08, 1);
    const double ratio = std::exp(random.uniform(std::log(kLeast), std::log(kMost)));
    Box box{.height = rounded(std::sqrt(area / ratio)), .width = rounded(std::sqrt(area * ratio))};
    if (box.height < 1 || box.width < 1 || box.height > height || box.width > width) continue;
    box.top = random.below(height - box.height + 1);
    box.left = random.below(width - box.width + 1);
    return box;
  }
  Box box{.height = height, .width = width};
  if (w / h < kLeast) box.height = rounded(w / kLeast);
  if (w / h > kMost) box.width = rounded(h * kMost);
  box.top = (height - box.height) / 2;
  box.left = (width - box.width) / 2;
  return box;
}

void augment_colours(const Picture& picture, const Augmentation& augmentation, const std::vector<uint8_t>& mean,
                     Random& random) {
  if (augmentation.color > 0) jitter(picture, augmentation.color, random);
  rand_augment(picture, augmentation, random);
  if (augmentation.erase > 0) erase_some(picture, augmentation.erase, mean, random);
}

std::vector<uint8_t> mean_levels(const Dataset& dataset) {
  std::vector<uint8_t> levels;
  for (const double mean : dataset.mean) {
    levels.push_back(static_cast<uint8_t>(std::clamp(std::nearbyint(255 * mean), 0.0, 255.0)));
  }
  return levels;
}

}  // namespace prunex::data
