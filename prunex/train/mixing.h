// Images of a batch mixed with each other, and the loss of what comes of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace prunex::train {

/// torchvision.transforms.v2's MixUp and CutMix: how much of an image stays is drawn from Beta(alpha, alpha). With
/// both, every batch has one of the two, as likely as not.
struct MixOptions {
  double mixup = 0, cutmix = 0;  ///< alpha; 0: off

  bool any() const { return mixup > 0 || cutmix > 0; }
};

/// How a batch is mixed with itself rolled by one: image i with image i - 1.
struct Mix {
  double image = 1;  ///< weight of the image's own pixels outside the box; inside they are the other's
  double label = 1;  ///< weight of its own label
  int64_t top = 0, bottom = 0, left = 0, right = 0;  ///< the box; bottom and right lie outside

  /// As six numbers, double, on the CPU.
  at::Tensor numbers() const;
};

/// Where a batch stands in a run.
struct BatchPlace {
  uint64_t seed = 0;
  int64_t epoch = 0, step = 0;
  int rank = 0;
};

/// A function of its arguments; shares come from Beta(alpha, alpha) with the alpha of mixup or cutmix, at least 0.001.
Mix draw_mix(const MixOptions& options, const BatchPlace& place, int64_t height, int64_t width);

/// `numbers`: a Mix's, where the images are. Returns images of the same layout.
at::Tensor mixed(const at::Tensor& images, const at::Tensor& numbers);
/// B x classes: the shares of a mixed batch's labels.
at::Tensor mixed_labels(const at::Tensor& labels, const at::Tensor& numbers, int64_t classes, at::ScalarType type);

}  // namespace prunex::train
