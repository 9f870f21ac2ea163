// Batches on the fly: shuffled, augmented, normalised.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "prunex/data/dataset.h"

namespace prunex::data {

struct Batch {
  at::Tensor images;  ///< float, B x C x H x W, channels_last, normalised
  at::Tensor labels;  ///< int64, B
};

struct Part;
class Prefetch;

/// Rows of Loader's draws.
enum Draw : int64_t {
  kImage,  ///< its number in the set
  kDown,   ///< where in the padded image the crop begins, from where the image does
  kRight,
  kFlip,  ///< 1: mirrored
};
inline constexpr int64_t kDraws = 4;

struct LoaderOptions {
  int64_t batch_size = 128;  ///< images per rank and step
  int64_t rank = 0;          ///< this rank among all of them
  int64_t ranks = 1;         ///< of all nodes together
  uint64_t seed = 0;         ///< equal on all ranks
};

/// A step of an epoch.
struct Cursor {
  int64_t epoch = 0, step = 0;
  bool operator==(const Cursor&) const = default;
};

/// Training batches. Every epoch is a permutation of the whole set, drawn from (seed, epoch); step s of it is the next
/// ranks x batch_size positions, one disjoint stretch per rank. The images beyond the last whole step sit out this
/// epoch. How an image is augmented depends on (seed, epoch, position) only. So batches are a function of
/// (epoch, step): that pair is all there is to resume from, and ranks x batch_size decides what a step sees, not how
/// it is divided. Images that are streamed are decoded ahead by threads, on which batches do not depend; copies of a
/// loader that made a batch share them, and may not be used at the same time. Where nodes have images of their own, all
/// this holds for the ranks and images of a node.
class Loader {
 public:
  /// `images`: the numbers of those that are the set; empty: all.
  /// std::invalid_argument if the set is smaller than one step or an option is out of range.
  Loader(Dataset dataset, const LoaderOptions& options, std::vector<int64_t> images = {});

  /// floor(N / (ranks x batch_size)), at least 1; of epochs that divide() did not touch.
  int64_t steps_per_epoch() const;
  int64_t steps_in(int64_t epoch) const;
  /// The step after this one.
  Cursor after(Cursor at) const;

  /// From this step on, the images that follow are divided among so many ranks: none twice, none left out. The step to
  /// go on with: `from`, or the next epoch's first one where the rest is less than a step. Throws std::invalid_argument
  /// as the constructor does.
  Cursor divide(int64_t rank, int64_t ranks, Cursor from);
  /// The same among the ranks as they are, where that step begins at this place of the epoch's order; and that place.
  Cursor go_on(Cursor from, int64_t position);
  int64_t position(Cursor at) const { return first_position(at.epoch, at.step); }

  /// `epoch` >= 0, 0 <= `step` < steps_in(epoch), in any order; going through one epoch at a time is cheapest.
  Batch batch(int64_t epoch, int64_t step);
  /// The same before normalisation, into tensors of the CPU: images uint8, channels_last.
  void pixels(int64_t epoch, int64_t step, Batch& into);
  /// The same before augmentation: what it is made of, kDraws x B, int64. Where augmentation is_shift() only.
  at::Tensor draws(int64_t epoch, int64_t step);

  const Dataset& dataset() const { return dataset_; }
  int64_t batch_size() const { return options_.batch_size; }

 private:
  void shuffle(int64_t epoch);
  int64_t first_position(int64_t epoch, int64_t step) const;
  std::vector<Part> parts(int64_t epoch, int64_t step);
  Batch streamed(int64_t epoch, int64_t step);
  int64_t size() const { return images_.empty() ? dataset_.size() : static_cast<int64_t>(images_.size()); }

  Dataset dataset_;
  std::vector<int64_t> images_;
  LoaderOptions options_;
  Cursor divided_{-1, 0};      // where divide() has begun
  int64_t divided_first_ = 0;  // the first position of that step
  int64_t epoch_ = -1;         // which permutation_ is of
  std::vector<int64_t> permutation_;
  std::shared_ptr<Prefetch> prefetch_;  // once a batch was asked for, of images that are streamed
};

/// The order of epoch `epoch`: a permutation of 0 … size - 1, drawn from (seed, epoch).
std::vector<int64_t> epoch_permutation(int64_t size, uint64_t seed, int64_t epoch);

/// The first `n` images of epoch 0's order (all, if there are fewer) as training sees them: augmented by the draws that
/// Loader takes there.
Dataset first_augmented(const Dataset& dataset, uint64_t seed, int64_t n);

/// Images begin … end - 1 in the order of the set, without augmentation. Throws c10::Error for none, or others than the
/// set's.
Batch evaluation_batch(const Dataset& dataset, int64_t begin, int64_t end);

}  // namespace prunex::data
