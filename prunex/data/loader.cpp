#include "prunex/data/loader.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "prunex/data/random.h"

namespace prunex::data {
namespace {

// One seed serves independent streams.
enum Stream : uint64_t { kPermutation = 1, kAugmentation = 2 };

/// How an image is augmented.
struct Draws {
  int64_t down = 0, right = 0;
  bool flip = false;
};

/// Crops, flips and normalises one image after another; rows are runs of W x C bytes in channels_last.
class Transform {
 public:
  explicit Transform(const Dataset& dataset)
      : channels_(dataset.images.size(1)),
        height_(dataset.images.size(2)),
        row_(dataset.images.size(3) * channels_),
        pixels_(static_cast<size_t>(height_ * row_)),
        scale_(static_cast<size_t>(row_)),
        shift_(static_cast<size_t>(row_)) {
    const ChannelScales scales = channel_scales(dataset);
    for (size_t i = 0; i < scale_.size(); ++i) {
      const size_t channel = i % static_cast<size_t>(channels_);
      scale_[i] = scales.scale[channel];
      shift_[i] = scales.shift[channel];
    }
  }

  int64_t image_bytes() const { return height_ * row_; }

  void normalise(const uint8_t* image, float* out) const {
    for (int64_t y = 0; y < height_; ++y, image += row_, out += row_) {
      for (int64_t i = 0; i < row_; ++i) out[i] = static_cast<float>(image[i]) * scale_[i] + shift_[i];
    }
  }

  void augment(const uint8_t* image, const Draws& draws, uint8_t* out) const {
    for (int64_t y = 0; y < height_; ++y) crop_row(image, y + draws.down, draws.right, out + y * row_);
    if (draws.flip) flip_rows(out);
  }

  void augment_and_normalise(const uint8_t* image, const Draws& draws, float* out) {
    augment(image, draws, pixels_.data());
    normalise(pixels_.data(), out);
  }

 private:
  // Row y of the image, moved left by `right` pixels; what lies outside the image is black.
  void crop_row(const uint8_t* image, int64_t y, int64_t right, uint8_t* out) const {
    std::memset(out, 0, static_cast<size_t>(row_));
    int64_t skipped = std::abs(right) * channels_;
    if (y < 0 || y >= height_ || skipped >= row_) return;
    const uint8_t* source = image + y * row_;
    std::memcpy(out + (right < 0 ? skipped : 0), source + (right > 0 ? skipped : 0), row_ - skipped);
  }

  void flip_rows(uint8_t* image) const {
    for (uint8_t* row = image; row != image + image_bytes(); row += row_) {
      for (uint8_t *left = row, *right = row + row_ - channels_; left < right; left += channels_, right -= channels_) {
        std::swap_ranges(left, left + channels_, right);
      }
    }
  }

  int64_t channels_;
  int64_t height_;
  int64_t row_;  // bytes
  std::vector<uint8_t> pixels_;
  std::vector<float> scale_, shift_;  // of a whole row: one straight loop, whatever the number of channels
};

/// What augments the image at `position` of an epoch's order.
Draws augmentation_draws(const Augmentation& augmentation, uint64_t seed, int64_t epoch, int64_t position) {
  Random random({seed, kAugmentation, static_cast<uint64_t>(epoch), static_cast<uint64_t>(position)});
  Draws draws;
  draws.down = random.between(-augmentation.padding, augmentation.padding);
  draws.right = random.between(-augmentation.padding, augmentation.padding);
  draws.flip = augmentation.flip && random.below(2) == 1;
  return draws;
}

Batch empty_batch(const Dataset& dataset, int64_t size) {
  auto shape = dataset.images.sizes().vec();
  shape[0] = size;
  return {at::empty(shape, at::kFloat, at::kStrided, at::kCPU, false, at::MemoryFormat::ChannelsLast),
          at::empty({size}, at::kLong)};
}

void check_options(const Dataset& dataset, int64_t size, const LoaderOptions& options) {
  TORCH_CHECK(options.ranks >= 1 && options.rank >= 0 && options.rank < options.ranks, "[data] rank ", options.rank,
              " of ", options.ranks);
  if (options.batch_size < 1) {
    throw std::invalid_argument(fmt::format("`batch_size`: got {}, wanted at least 1", options.batch_size));
  }
  if (options.batch_size > size / options.ranks) {
    throw std::invalid_argument(
        fmt::format("`batch_size`: got {}, a step takes {} x {} images, one batch per rank; {} has {}",
                    options.batch_size, options.ranks, options.batch_size, dataset.name, size));
  }
}

}  // namespace

Loader::Loader(Dataset dataset, const LoaderOptions& options, std::vector<int64_t> images)
    : dataset_(std::move(dataset)), images_(std::move(images)), options_(options) {
  check_options(dataset_, size(), options_);
  dataset_.images = dataset_.images.contiguous(at::MemoryFormat::ChannelsLast);
  dataset_.labels = dataset_.labels.contiguous();
}

int64_t Loader::steps_per_epoch() const {
  return size() / (options_.ranks * options_.batch_size);
}

// Shuffled from the identity: an epoch's permutation does not depend on the one before.
std::vector<int64_t> epoch_permutation(int64_t size, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> permutation(static_cast<size_t>(size));
  std::iota(permutation.begin(), permutation.end(), 0);
  Random({seed, kPermutation, static_cast<uint64_t>(epoch)}).shuffle(permutation);
  return permutation;
}

void Loader::shuffle(int64_t epoch) {
  if (epoch == epoch_) return;
  permutation_ = epoch_permutation(size(), options_.seed, epoch);
  epoch_ = epoch;
}

at::Tensor Loader::draws(int64_t epoch, int64_t step) {
  TORCH_CHECK(epoch >= 0 && step >= 0 && step < steps_per_epoch(), "[data] no step ", step, " in epoch ", epoch, ": ",
              steps_per_epoch(), " steps per epoch");
  shuffle(epoch);
  at::Tensor draws = at::empty({kDraws, options_.batch_size}, at::kLong);
  auto drawn = draws.accessor<int64_t, 2>();
  const int64_t first = (step * options_.ranks + options_.rank) * options_.batch_size;
  for (int64_t i = 0; i < options_.batch_size; ++i) {
    const int64_t place = permutation_[first + i];
    const Draws of_image = augmentation_draws(dataset_.augmentation, options_.seed, epoch, first + i);
    drawn[kImage][i] = images_.empty() ? place : images_[place];
    drawn[kDown][i] = of_image.down;
    drawn[kRight][i] = of_image.right;
    drawn[kFlip][i] = of_image.flip;
  }
  return draws;
}

namespace {

/// Calls make(transform, pixels of the set's image, its draws, i) for every image of a batch, and takes its label.
template <class Make>
void make_batch(const Dataset& dataset, const at::Tensor& draws, Batch& batch, const Make& make) {
  Transform transform(dataset);
  const auto drawn = draws.accessor<int64_t, 2>();
  const auto* images = dataset.images.const_data_ptr<uint8_t>();
  for (int64_t i = 0; i < draws.size(1); ++i) {
    const int64_t index = drawn[kImage][i];
    make(transform, images + index * transform.image_bytes(),
         Draws{.down = drawn[kDown][i], .right = drawn[kRight][i], .flip = drawn[kFlip][i] == 1}, i);
    batch.labels.data_ptr<int64_t>()[i] = dataset.labels.const_data_ptr<int64_t>()[index];
  }
}

}  // namespace

Batch Loader::batch(int64_t epoch, int64_t step) {
  Batch batch = empty_batch(dataset_, options_.batch_size);
  make_batch(dataset_, draws(epoch, step), batch,
             [&](Transform& transform, const uint8_t* image, const Draws& draws, int64_t i) {
               transform.augment_and_normalise(image, draws,
                                               batch.images.data_ptr<float>() + i * transform.image_bytes());
             });
  return batch;
}

void Loader::pixels(int64_t epoch, int64_t step, Batch& into) {
  TORCH_CHECK(into.images.is_contiguous(at::MemoryFormat::ChannelsLast), "[data] images that are not channels_last");
  make_batch(dataset_, draws(epoch, step), into,
             [&](const Transform& transform, const uint8_t* image, const Draws& draws, int64_t i) {
               transform.augment(image, draws, into.images.data_ptr<uint8_t>() + i * transform.image_bytes());
             });
}

Dataset first_augmented(const Dataset& dataset, uint64_t seed, int64_t n) {
  auto order = epoch_permutation(dataset.size(), seed, 0);
  order.resize(std::min(order.size(), static_cast<size_t>(n)));
  const at::Tensor index = at::tensor(order, at::kLong);
  const at::Tensor plain = dataset.images.index_select(0, index).contiguous(at::MemoryFormat::ChannelsLast);
  Dataset first = dataset;
  first.images = at::empty_like(plain);
  first.labels = dataset.labels.index_select(0, index);
  const Transform transform(dataset);
  for (int64_t i = 0; i < first.size(); ++i) {
    const int64_t offset = i * transform.image_bytes();
    transform.augment(plain.const_data_ptr<uint8_t>() + offset, augmentation_draws(dataset.augmentation, seed, 0, i),
                      first.images.data_ptr<uint8_t>() + offset);
  }
  return first;
}

Batch evaluation_batch(const Dataset& dataset, int64_t begin, int64_t end) {
  TORCH_CHECK(0 <= begin && begin < end && end <= dataset.size(), "[data] no images ", begin, " to ", end, " of ",
              dataset.size());
  Transform transform(dataset);
  Batch batch = empty_batch(dataset, end - begin);
  at::Tensor images = dataset.images.narrow(0, begin, end - begin).contiguous(at::MemoryFormat::ChannelsLast);
  for (int64_t i = 0; i < end - begin; ++i) {
    transform.normalise(images.const_data_ptr<uint8_t>() + i * transform.image_bytes(),
                        batch.images.data_ptr<float>() + i * transform.image_bytes());
  }
  batch.labels.copy_(dataset.labels.narrow(0, begin, end - begin));
  return batch;
}

}  // namespace prunex::data
