#include "prunex/data/loader.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "prunex/data/augment.h"
#include "prunex/data/image_stream.h"
#include "prunex/data/pixels.h"
#include "prunex/data/prefetch.h"
#include "prunex/data/random.h"

namespace prunex::data {
namespace {

constexpr uint64_t kPermutation = 1;  // one seed serves independent streams

Batch normalised(const Pixels& pixels, const Batch& bytes, const Dataset& dataset) {
  const Batch batch{empty_batch(dataset, bytes.labels.size(0), at::kFloat).images, bytes.labels};
  for (int64_t i = 0; i < bytes.labels.size(0); ++i) {
    pixels.normalise(bytes.images.const_data_ptr<uint8_t>() + i * pixels.image_bytes(),
                     batch.images.data_ptr<float>() + i * pixels.image_bytes());
  }
  return batch;
}

/// Normalised by the threads that decode, which live as long as that takes.
Batch decoded(const Dataset& dataset, int64_t begin, int64_t end) {
  const Pixels pixels(dataset);
  const Batch batch = empty_batch(dataset, end - begin, at::kFloat);
  Workers workers(std::min(dataset.streamed.stream->options().threads, end - begin));
  const auto job = workers.start(end - begin, [&](int64_t i) {
    std::vector<uint8_t> image(static_cast<size_t>(pixels.image_bytes()));
    const int64_t taken = pixels.plain(begin + i, image.data());
    pixels.normalise(image.data(), batch.images.data_ptr<float>() + i * pixels.image_bytes());
    batch.labels.data_ptr<int64_t>()[i] = dataset.labels.const_data_ptr<int64_t>()[taken];
  });
  workers.wait(*job);
  return batch;
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
  for (const int64_t number : images_) {
    TORCH_CHECK(number >= 0 && number < dataset_.size(), "[data] no image ", number, " among ", dataset_.size());
  }
  if (!dataset_.is_streamed()) dataset_.images = dataset_.images.contiguous(at::MemoryFormat::ChannelsLast);
  dataset_.labels = dataset_.labels.contiguous();
}

int64_t Loader::steps_per_epoch() const {
  return size() / (options_.ranks * options_.batch_size);
}

int64_t Loader::steps_in(int64_t epoch) const {
  if (epoch != divided_.epoch) return steps_per_epoch();
  return divided_.step + (size() - divided_first_) / (options_.ranks * options_.batch_size);
}

Cursor Loader::after(Cursor at) const {
  return at.step + 1 < steps_in(at.epoch) ? Cursor{at.epoch, at.step + 1} : Cursor{at.epoch + 1, 0};
}

int64_t Loader::first_position(int64_t epoch, int64_t step) const {
  const bool divided = epoch == divided_.epoch;
  const int64_t steps = step - (divided ? divided_.step : 0);
  return (divided ? divided_first_ : 0) + steps * options_.ranks * options_.batch_size;
}

Cursor Loader::divide(int64_t rank, int64_t ranks, Cursor from) {
  const int64_t first = position(from);
  options_.rank = rank;
  options_.ranks = ranks;
  check_options(dataset_, size(), options_);
  return go_on(from, first);
}

Cursor Loader::go_on(Cursor from, int64_t position) {
  divided_ = from;
  divided_first_ = position;
  prefetch_.reset();
  return from.step < steps_in(from.epoch) ? from : Cursor{from.epoch + 1, 0};
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

std::vector<Part> Loader::parts(int64_t epoch, int64_t step) {
  TORCH_CHECK(epoch >= 0 && step >= 0 && step < steps_in(epoch), "[data] no step ", step, " in epoch ", epoch,
              ": it has ", steps_in(epoch));
  shuffle(epoch);
  const int64_t first = first_position(epoch, step) + options_.rank * options_.batch_size;
  std::vector<Part> parts;
  for (int64_t position = first; position < first + options_.batch_size; ++position) {
    const int64_t place = permutation_[position];
    parts.push_back({images_.empty() ? place : images_[place],
                     augmentation_draws(dataset_.augmentation, options_.seed, epoch, position)});
  }
  return parts;
}

at::Tensor Loader::draws(int64_t epoch, int64_t step) {
  TORCH_CHECK(dataset_.augmentation.is_shift(), "[data] `augment` ", to_string(dataset_.augmentation),
              ": more than a batch's draws say");
  at::Tensor draws = at::empty({kDraws, options_.batch_size}, at::kLong);
  auto drawn = draws.accessor<int64_t, 2>();
  int64_t i = 0;
  for (const auto& [number, of_image] : parts(epoch, step)) {
    drawn[kImage][i] = number;
    drawn[kDown][i] = of_image.down;
    drawn[kRight][i] = of_image.right;
    drawn[kFlip][i++] = of_image.flip;
  }
  return draws;
}

/// Pixels and labels of images that are streamed.
Batch Loader::streamed(int64_t epoch, int64_t step) {
  if (!prefetch_) prefetch_ = std::make_shared<Prefetch>(dataset_, images_);
  return prefetch_->take({epoch, step}, *this, [this](Cursor at) { return parts(at.epoch, at.step); });
}

Batch Loader::batch(int64_t epoch, int64_t step) {
  const Pixels pixels(dataset_);
  if (dataset_.is_streamed()) return normalised(pixels, streamed(epoch, step), dataset_);
  Batch batch = empty_batch(dataset_, options_.batch_size, at::kFloat);
  std::vector<uint8_t> image(static_cast<size_t>(pixels.image_bytes()));
  int64_t i = 0;
  for (const auto& [number, draws] : parts(epoch, step)) {
    pixels.augmented(number, draws, image.data());
    pixels.normalise(image.data(), batch.images.data_ptr<float>() + i * pixels.image_bytes());
    batch.labels.data_ptr<int64_t>()[i++] = dataset_.labels.const_data_ptr<int64_t>()[number];
  }
  return batch;
}

void Loader::pixels(int64_t epoch, int64_t step, Batch& into) {
  TORCH_CHECK(into.images.is_contiguous(at::MemoryFormat::ChannelsLast), "[data] images that are not channels_last");
  if (dataset_.is_streamed()) {
    const Batch made = streamed(epoch, step);
    std::memcpy(into.images.data_ptr(), made.images.const_data_ptr(), made.images.nbytes());
    std::memcpy(into.labels.data_ptr(), made.labels.const_data_ptr(), made.labels.nbytes());
    return;
  }
  const Pixels pixels(dataset_);
  int64_t i = 0;
  for (const auto& [number, draws] : parts(epoch, step)) {
    pixels.augmented(number, draws, into.images.data_ptr<uint8_t>() + i * pixels.image_bytes());
    into.labels.data_ptr<int64_t>()[i++] = dataset_.labels.const_data_ptr<int64_t>()[number];
  }
}

Dataset first_augmented(const Dataset& dataset, uint64_t seed, int64_t n) {
  auto order = epoch_permutation(dataset.size(), seed, 0);
  order.resize(std::min(order.size(), static_cast<size_t>(n)));
  if (dataset.is_streamed()) {
    Dataset first = in_order(dataset, order);
    first.streamed.augmented_by = seed;
    return first;
  }
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
  if (dataset.is_streamed()) return decoded(dataset, begin, end);
  Batch part{dataset.images.narrow(0, begin, end - begin).contiguous(at::MemoryFormat::ChannelsLast),
             dataset.labels.narrow(0, begin, end - begin).clone()};
  return normalised(Pixels(dataset), part, dataset);
}

}  // namespace prunex::data
