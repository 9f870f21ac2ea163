// How a rank's batches come to where it computes, without anybody waiting.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "prunex/data/loader.h"

namespace prunex::train {

class BatchFeed {
 public:
  explicit BatchFeed(data::Loader loader) : loader_(std::move(loader)) {}
  virtual ~BatchFeed() = default;

  data::Loader& loader() { return loader_; }

  /// Sends what the batch of the step is made of. Returns before it is there.
  virtual void load(int64_t epoch, int64_t step) = 0;
  /// The batch that was loaded last, made by operations where it is wanted.
  virtual data::Batch batch() const = 0;
  /// The tensors that load() fills and batch() reads, the same in all steps.
  virtual std::vector<at::Tensor> inputs() const = 0;

 protected:
  data::Loader loader_;
};

/// On the CPU the loader's own batches. Elsewhere the whole set lies on the device as bytes where it takes at most a
/// quarter of the memory that is free there and is cropped and mirrored alone, and a step sends its draws; else a step
/// sends bytes, through two page-locked buffers and on a stream of their own. Either way batches have the loader's
/// bits.
std::unique_ptr<BatchFeed> make_batch_feed(data::Loader loader, const c10::Device& device);

}  // namespace prunex::train
