#include "prunex/data/pixels.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "prunex/data/decode.h"
#include "prunex/data/image_stream.h"

namespace prunex::data {

Pixels::Pixels(const Dataset& dataset, std::vector<int64_t> own)
    : dataset_(dataset),
      own_(std::move(own)),
      channels_(dataset.image_shape()[0]),
      height_(dataset.image_shape()[1]),
      width_(dataset.image_shape()[2]),
      row_(width_ * channels_),
      mean_(mean_levels(dataset)),
      scale_(static_cast<size_t>(row_)),
      shift_(static_cast<size_t>(row_)) {
  std::sort(own_.begin(), own_.end());
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
  TORCH_CHECK(dataset_.images.is_contiguous(at::MemoryFormat::ChannelsLast),
              "[data] images that are not channels_last");
  return dataset_.images.const_data_ptr<uint8_t>() + number * image_bytes();
}

int64_t Pixels::next(int64_t number) const {
  if (own_.empty()) return (number + 1) % dataset_.size();
  const auto behind = std::upper_bound(own_.begin(), own_.end(), number);
  return behind == own_.end() ? own_.front() : *behind;
}

/// make(place in the stream's order, number there) of the image, or of the next one that can be read.
template <class Make>
int64_t Pixels::first_whole(int64_t number, const Make& make) const {
  const auto& streamed = dataset_.streamed;
  const int64_t images = own_.empty() ? dataset_.size() : static_cast<int64_t>(own_.size());
  for (int64_t i = 0, taken = number; i < images; ++i, taken = next(taken)) {
    const int64_t stored_as = streamed.number_of(taken);
    try {
      make(streamed.first + taken, stored_as);
      return taken;
    } catch (const BrokenImage& error) {
      streamed.stream->report_broken(stored_as, error.what());
    }
  }
  throw std::runtime_error(fmt::format("{}: none of {} images can be read", dataset_.name, images));
}

int64_t Pixels::plain(int64_t number, uint8_t* out) const {
  if (!dataset_.is_streamed()) {
    std::memcpy(out, stored(number), static_cast<size_t>(image_bytes()));
    return number;
  }
  return first_whole(number, [&](int64_t place, int64_t image) {
    const auto seed = dataset_.streamed.augmented_by;
    if (seed) return augment(image, augmentation_draws(dataset_.augmentation, *seed, 0, place), out);
    dataset_.streamed.stream->plain(image, {out, height_, width_, channels_});
  });
}

int64_t Pixels::augmented(int64_t number, const Draws& draws, uint8_t* out) const {
  if (dataset_.is_streamed()) {
    return first_whole(number, [&](int64_t, int64_t image) { augment(image, draws, out); });
  }
  augment(number, draws, out);
  return number;
}

/// `image`: its number in the stream or the tensor.
void Pixels::augment(int64_t image, Draws draws, uint8_t* out) const {
  const Augmentation& augmentation = dataset_.augmentation;
  const ImageStream* stream = dataset_.streamed.stream.get();
  const Picture picture{out, height_, width_, channels_};
  if (augmentation.crop_size > 0 && stream != nullptr) {
    stream->resized_crop(image, draws.rest.split(), picture);
  } else if (augmentation.crop_size > 0) {
    const Picture whole{const_cast<uint8_t*>(stored(image)), height_, width_, channels_};  // is only read
    Random box = draws.rest.split();
    resize(whole, resized_crop_box(height_, width_, box), picture);
  } else if (stream != nullptr) {
    std::vector<uint8_t> plain(static_cast<size_t>(image_bytes()));
    stream->plain(image, {plain.data(), height_, width_, channels_});
    shift(plain.data(), draws, out);
  } else {
    shift(stored(image), draws, out);
  }
  if (draws.flip) flip(picture);
  augment_colours(picture, augmentation, mean_, draws.rest);
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
