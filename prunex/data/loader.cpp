#include "prunex/data/loader.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "prunex/data/augment.h"
#include "prunex/data/pixels.h"
#include "prunex/data/random.h"

namespace prunex::data {
namespace {

constexpr uint64_t kPermutation = 1;  // one seed serves independent streams

Batch empty_batch(const Dataset& dataset, int64_t size) {
  auto shape = dataset.image_shape();
  shape.insert(shape.begin(), size);
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

/// Where this rank's part of the step begins in the order of the epoch.
int64_t Loader::first_position(int64_t step) const {
  return (step * options_.ranks + options_.rank) * options_.batch_size;
}

std::vector<int64_t> Loader::numbers(int64_t epoch, int64_t step) {
  TORCH_CHECK(epoch >= 0 && step >= 0 && step < steps_per_epoch(), "[data] no step ", step, " in epoch ", epoch, ": ",
              steps_per_epoch(), " steps per epoch");
  shuffle(epoch);
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < options_.batch_size; ++i) {
    const int64_t place = permutation_[first_position(step) + i];
    numbers.push_back(images_.empty() ? place : images_[place]);
  }
  return numbers;
}

at::Tensor Loader::draws(int64_t epoch, int64_t step) {
  TORCH_CHECK(dataset_.augmentation.is_shift(), "[data] `augment` ", to_string(dataset_.augmentation),
              ": more than a batch's draws say");
  const auto images = numbers(epoch, step);
  at::Tensor draws = at::empty({kDraws, options_.batch_size}, at::kLong);
  auto drawn = draws.accessor<int64_t, 2>();
  for (int64_t i = 0; i < options_.batch_size; ++i) {
    const Draws of_image = augmentation_draws(dataset_.augmentation, options_.seed, epoch, first_position(step) + i);
    drawn[kImage][i] = images[i];
    drawn[kDown][i] = of_image.down;
    drawn[kRight][i] = of_image.right;
    drawn[kFlip][i] = of_image.flip;
  }
  return draws;
}

/// make(pixels, i, number, draws) for every image of a step returns the number of the image that it took.
template <class Make>
void Loader::make_batch(int64_t epoch, int64_t step, Batch& batch, const Make& make) {
  const Pixels pixels(dataset_);
  const auto images = numbers(epoch, step);
  for (int64_t i = 0; i < options_.batch_size; ++i) {
    const int64_t taken =
        make(pixels, i, images[i],
             augmentation_draws(dataset_.augmentation, options_.seed, epoch, first_position(step) + i));
    batch.labels.data_ptr<int64_t>()[i] = dataset_.labels.const_data_ptr<int64_t>()[taken];
  }
}

Batch Loader::batch(int64_t epoch, int64_t step) {
  Batch batch = empty_batch(dataset_, options_.batch_size);
  std::vector<uint8_t> image;
  make_batch(epoch, step, batch, [&](const Pixels& pixels, int64_t i, int64_t number, const Draws& draws) {
    image.resize(static_cast<size_t>(pixels.image_bytes()));
    const int64_t taken = pixels.augmented(number, draws, image.data());
    pixels.normalise(image.data(), batch.images.data_ptr<float>() + i * pixels.image_bytes());
    return taken;
  });
  return batch;
}

void Loader::pixels(int64_t epoch, int64_t step, Batch& into) {
  TORCH_CHECK(into.images.is_contiguous(at::MemoryFormat::ChannelsLast), "[data] images that are not channels_last");
  make_batch(epoch, step, into, [&](const Pixels& pixels, int64_t i, int64_t number, const Draws& draws) {
    return pixels.augmented(number, draws, into.images.data_ptr<uint8_t>() + i * pixels.image_bytes());
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
  Dataset source = dataset;
  source.images = plain;
  const Pixels pixels(source);
  for (int64_t i = 0; i < first.size(); ++i) {
    pixels.augmented(i, augmentation_draws(dataset.augmentation, seed, 0, i),
                     first.images.data_ptr<uint8_t>() + i * pixels.image_bytes());
  }
  return first;
}

Batch evaluation_batch(const Dataset& dataset, int64_t begin, int64_t end) {
  TORCH_CHECK(0 <= begin && begin < end && end <= dataset.size(), "[data] no images ", begin, " to ", end, " of ",
              dataset.size());
  Dataset part = dataset;
  part.images = dataset.images.narrow(0, begin, end - begin).contiguous(at::MemoryFormat::ChannelsLast);
  const Pixels pixels(part);
  Batch batch = empty_batch(dataset, end - begin);
  for (int64_t i = 0; i < end - begin; ++i) {
    pixels.normalise(part.images.const_data_ptr<uint8_t>() + i * pixels.image_bytes(),
                     batch.images.data_ptr<float>() + i * pixels.image_bytes());
  }
  batch.labels.copy_(dataset.labels.narrow(0, begin, end - begin));
  return batch;
}

}  // namespace prunex::data
