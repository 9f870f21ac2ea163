// Batches of Loader's bits made where a network trains, by operations there.
#pragma once

#include <ATen/core/Tensor.h>

#include "prunex/data/dataset.h"
#include "prunex/data/loader.h"

namespace prunex::data {

/// What Loader does to pixels last: a product and a sum, each rounded.
class Normalisation {
 public:
  Normalisation(const Dataset& dataset, const c10::Device& device);

  /// uint8, B x C x H x W -> float, in the same layout.
  at::Tensor operator()(const at::Tensor& pixels) const;

 private:
  at::Tensor scale_, shift_;  // C x 1 x 1
};

/// A set's images and labels on a device. Its augmentation is_shift().
class DeviceImages {
 public:
  DeviceImages(const Dataset& dataset, const c10::Device& device);

  /// `draws`: Loader's, on the device.
  Batch batch(const at::Tensor& draws) const;

 private:
  at::Tensor cropped(const at::Tensor& draws) const;

  const Normalisation normalise_;
  const bool augments_;
  at::Tensor images_;  // N x H x W x C
  at::Tensor labels_;
  at::Tensor rows_, columns_, mirror_;  // 0 … H - 1; 0 … W - 1; how far a mirrored column moves
};

}  // namespace prunex::data
