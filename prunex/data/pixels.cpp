#include "prunex/data/pixels.h"

#include <ATen/core/Tensor.h>

#include <cstdlib>
#include <cstring>

namespace prunex::data {

Pixels::Pixels(const Dataset& dataset)
    : dataset_(dataset),
      channels_(dataset.image_shape()[0]),
      height_(dataset.image_shape()[1]),
      width_(dataset.image_shape()[2]),
      row_(width_ * channels_),
      mean_(mean_levels(dataset)),
      scale_(static_cast<size_t>(row_)),
      shift_(static_cast<size_t>(row_)) {
  const ChannelScales scales = channel_scales(dataset);
  for (size_t i = 0; i < scale_.size() && !scales.scale.empty(); ++i) {
    const size_t channel = i % static_cast<size_t>(channels_);
    scale_[i] = scales.scale[channel];
    shift_[i] = scales.shift[channel];
  }
}

void Pixels::normalise(const uint8_t* image, float* out) const {
  for (int64_t y = 0; y < height_; ++y, image += row_, out += row_) {
    for (int64_t i = 0; i < row_; ++i) out[i] = static_cast<float>(image[i]) * scale_[i] + shift_[i];
  }
}

const uint8_t* Pixels::stored(int64_t number) const {
  return dataset_.images.const_data_ptr<uint8_t>() + number * image_bytes();
}

int64_t Pixels::plain(int64_t number, uint8_t* out) const {
  std::memcpy(out, stored(number), static_cast<size_t>(image_bytes()));
  return number;
}

int64_t Pixels::augmented(int64_t number, Draws draws, uint8_t* out) const {
  const Augmentation& augmentation = dataset_.augmentation;
  const Picture picture{out, height_, width_, channels_};
  if (augmentation.crop_size > 0) {
    const Picture whole{const_cast<uint8_t*>(stored(number)), height_, width_, channels_};  // is only read
    resize(whole, resized_crop_box(height_, width_, draws.rest), picture);
  } else {
    shift(stored(number), draws, out);
  }
  if (draws.flip) flip(picture);
  augment_colours(picture, augmentation, mean_, draws.rest);
  return number;
}

/// The image, moved up and left; what lies outside of it is black.
void Pixels::shift(const uint8_t* image, const Draws& draws, uint8_t* out) const {
  const int64_t skipped = std::abs(draws.right) * channels_;
  for (int64_t i = 0; i < height_; ++i, out += row_) {
    std::memset(out, 0, static_cast<size_t>(row_));
    const int64_t y = i + draws.down;
    if (y < 0 || y >= height_ || skipped >= row_) continue;
    std::memcpy(out + (draws.right < 0 ? skipped : 0), image + y * row_ + (draws.right > 0 ? skipped : 0),
                static_cast<size_t>(row_ - skipped));
  }
}

}  // namespace prunex::data
