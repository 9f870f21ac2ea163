#include "prunex/train/mixing.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "prunex/data/random.h"

namespace prunex::train {
namespace {

double normal(data::Random& random) {  // Box and Muller's
  const double radius = std::sqrt(-2 * std::log(random.uniform()));
  return radius * std::cos(2 * std::numbers::pi * random.uniform());
}

/// The logarithm of a number from Gamma(shape, 1), for small ones, too: Marsaglia and Tsang's method ("A simple method
/// for generating gamma variables", 2000) at shape + 1, and a power of a uniform number.
double log_gamma_variate(double shape, data::Random& random) {
  const double d = shape + 1 - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = normal(random), root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(random.uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) {
      return std::log(d * v) + std::log(random.uniform()) / shape;
    }
  }
}

double beta_variate(double alpha, data::Random& random) {
  const double first = log_gamma_variate(alpha, random), second = log_gamma_variate(alpha, random);
  return 1 / (1 + std::exp(second - first));
}

data::Random random_at(const BatchPlace& place) {
  constexpr uint64_t kMixing = 0x6d6978;  // keeps them apart from what loaders draw
  return data::Random({place.seed, kMixing, static_cast<uint64_t>(place.epoch), static_cast<uint64_t>(place.step),
                       static_cast<uint64_t>(place.rank)});
}

/// A box of 1 - lambda of the image, of which what lies outside is cut off.
Mix cut_mix(double lambda, data::Random& random, int64_t height, int64_t width) {
  const int64_t x = random.below(width), y = random.below(height);
  const double half = 0.5 * std::sqrt(1 - lambda);
  const auto half_width = static_cast<int64_t>(half * static_cast<double>(width));
  const auto half_height = static_cast<int64_t>(half * static_cast<double>(height));
  Mix mix{.top = std::max<int64_t>(0, y - half_height),
          .bottom = std::min(height, y + half_height),
          .left = std::max<int64_t>(0, x - half_width),
          .right = std::min(width, x + half_width)};
  const auto box = static_cast<double>((mix.bottom - mix.top) * (mix.right - mix.left));
  mix.label = 1 - box / static_cast<double>(width * height);
  return mix;
}

}  // namespace

at::Tensor Mix::numbers() const {
  return at::tensor({image, label, static_cast<double>(top), static_cast<double>(bottom), static_cast<double>(left),
                     static_cast<double>(right)},
                    at::kDouble);
}

Mix draw_mix(const MixOptions& options, const BatchPlace& place, int64_t height, int64_t width) {
  data::Random random = random_at(place);
  const bool cuts = options.cutmix > 0 && (options.mixup == 0 || random.below(2) == 1);
  const double lambda = beta_variate(cuts ? options.cutmix : options.mixup, random);
  return cuts ? cut_mix(lambda, random, height, width) : Mix{.image = lambda, .label = lambda};
}

at::Tensor mixed(const at::Tensor& images, const at::Tensor& numbers) {
  const auto inside = [&](int64_t axis, int64_t begin) {
    const at::Tensor places = at::arange(images.size(axis), numbers.options());
    return places.ge(numbers[begin]).logical_and(places.lt(numbers[begin + 1]));
  };
  const at::Tensor box = inside(2, 2).unsqueeze(1).logical_and(inside(3, 4));
  const at::Tensor own = at::where(box, 0.0, numbers[0]);
  const at::Tensor other = images.roll(1, 0).mul_((1 - own).to(images.scalar_type()));
  return other.add_(images * own.to(images.scalar_type()));
}

at::Tensor mixed_labels(const at::Tensor& labels, const at::Tensor& numbers, int64_t classes, at::ScalarType type) {
  const at::Tensor own =
      at::zeros({labels.size(0), classes}, labels.options().dtype(type)).scatter_(1, labels.unsqueeze(1), 1.0);
  return own.roll(1, 0).mul_((1 - numbers[1]).to(type)).add_(own * numbers[1].to(type));
}

}  // namespace prunex::train
