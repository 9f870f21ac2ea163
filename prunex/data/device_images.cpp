#include "prunex/data/device_images.h"

#include <ATen/ATen.h>

namespace prunex::data {

Normalisation::Normalisation(const Dataset& dataset, const c10::Device& device) {
  const auto [scale, shift] = channel_scales(dataset);
  scale_ = at::tensor(scale, at::kFloat).view({-1, 1, 1}).to(device);
  shift_ = at::tensor(shift, at::kFloat).view({-1, 1, 1}).to(device);
}

at::Tensor Normalisation::operator()(const at::Tensor& pixels) const {
  return pixels.to(at::kFloat).mul_(scale_).add_(shift_);
}

DeviceImages::DeviceImages(const Dataset& dataset, const c10::Device& device)
    : normalise_(dataset, device),
      augments_(dataset.augmentation.padding > 0 || dataset.augmentation.flip),
      images_(dataset.images.permute({0, 2, 3, 1}).contiguous().to(device)),
      labels_(dataset.labels.to(device)) {
  TORCH_CHECK(dataset.augmentation.is_shift(), "[data] images on a device can be cropped and mirrored alone");
  const auto numbers = at::TensorOptions().dtype(at::kLong).device(device);
  rows_ = at::arange(images_.size(1), numbers);
  columns_ = at::arange(images_.size(2), numbers);
  mirror_ = columns_.mul(-2).add_(images_.size(2) - 1);
}

/// Pixels of the crops; what lies outside the image is black.
at::Tensor DeviceImages::cropped(const at::Tensor& draws) const {
  const at::Tensor row = draws[kDown].unsqueeze(1).add(rows_).unsqueeze(2);
  const at::Tensor column =
      draws[kFlip].unsqueeze(1).mul(mirror_).add_(columns_).add_(draws[kRight].unsqueeze(1)).unsqueeze(1);
  const int64_t height = images_.size(1), width = images_.size(2);
  const at::Tensor inside =
      row.ge(0).logical_and_(row.lt(height)).logical_and(column.ge(0).logical_and_(column.lt(width)));
  const at::Tensor image = draws[kImage].view({-1, 1, 1});
  return images_.index({image, row.clamp(0, height - 1), column.clamp(0, width - 1)}).mul_(inside.unsqueeze(3));
}

Batch DeviceImages::batch(const at::Tensor& draws) const {
  const at::Tensor pixels = augments_ ? cropped(draws) : images_.index_select(0, draws[kImage]);
  return {normalise_(pixels.permute({0, 3, 1, 2})), labels_.index_select(0, draws[kImage])};
}

}  // namespace prunex::data
