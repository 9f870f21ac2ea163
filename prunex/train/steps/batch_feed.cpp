#include "prunex/train/steps/batch_feed.h"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <utility>

#include "prunex/data/device_images.h"

namespace prunex::train {
namespace {

constexpr size_t kShareOfFreeMemory = 4;  // one part of so many

class HostFeed final : public BatchFeed {
 public:
  using BatchFeed::BatchFeed;

  void load(int64_t epoch, int64_t step) override { batch_ = loader_.batch(epoch, step); }
  data::Batch batch() const override { return batch_; }
  std::vector<at::Tensor> inputs() const override { return {batch_.images, batch_.labels}; }

 private:
  data::Batch batch_;
};

class ResidentFeed final : public BatchFeed {
 public:
  ResidentFeed(data::Loader loader, const c10::Device& device)
      : BatchFeed(std::move(loader)),
        images_(loader_.dataset(), device),
        draws_(at::empty({data::kDraws, loader_.batch_size()}, at::TensorOptions(at::kLong).device(device))) {}

  /// The page-locked copy is kept by whoever allocates such memory until it was read.
  void load(int64_t epoch, int64_t step) override { draws_.copy_(loader_.draws(epoch, step).pin_memory(), true); }
  data::Batch batch() const override { return images_.batch(draws_); }
  std::vector<at::Tensor> inputs() const override { return {draws_}; }

 private:
  const data::DeviceImages images_;
  const at::Tensor draws_;
};

data::Batch empty_pixels(const data::Loader& loader, at::TensorOptions options) {
  auto shape = loader.dataset().image_shape();
  shape.insert(shape.begin(), loader.batch_size());
  return {at::empty(shape, options.dtype(at::kByte), at::MemoryFormat::ChannelsLast),
          at::empty({shape[0]}, options.dtype(at::kLong))};
}

void copy(const data::Batch& from, const data::Batch& to) {
  to.images.copy_(from.images, true);
  to.labels.copy_(from.labels, true);
}

class StreamedFeed final : public BatchFeed {
 public:
  StreamedFeed(data::Loader loader, const c10::Device& device)
      : BatchFeed(std::move(loader)),
        backend_(device.type()),
        device_(device),
        stream_(backend_.getStreamFromGlobalPool(device)),
        normalise_(loader_.dataset(), device),
        now_(empty_pixels(loader_, at::TensorOptions(device))),
        buffers_{Buffer(loader_, device), Buffer(loader_, device)} {
    for (Buffer& buffer : buffers_) buffer.taken.record(backend_.getStream(device_));  // the memory is theirs from here
  }

  /// The host waits for nothing but the copy of two steps ago, out of the memory that it is about to fill.
  void load(int64_t epoch, int64_t step) override {
    Buffer& buffer = buffers_[next_];
    next_ = 1 - next_;
    if (buffer.arrived.was_marked_for_recording()) buffer.arrived.synchronize();
    loader_.pixels(epoch, step, buffer.here);
    const c10::Stream work = backend_.getStream(device_);
    buffer.taken.block(stream_);
    {
      const c10::StreamGuard guard(stream_);
      copy(buffer.here, buffer.there);
      buffer.arrived.record(stream_);
    }
    buffer.arrived.block(work);
    copy(buffer.there, now_);
    buffer.taken.record(work);
  }

  data::Batch batch() const override { return {normalise_(now_.images), now_.labels}; }
  std::vector<at::Tensor> inputs() const override { return {now_.images, now_.labels}; }

 private:
  struct Buffer {
    Buffer(const data::Loader& loader, const c10::Device& device)
        : here(empty_pixels(loader, at::TensorOptions().pinned_memory(true))),
          there(empty_pixels(loader, at::TensorOptions(device))),
          arrived(device.type()),
          taken(device.type()) {}

    data::Batch here, there;
    c10::Event arrived, taken;  // there; where steps read
  };

  const c10::impl::VirtualGuardImpl backend_;
  const c10::Device device_;
  const c10::Stream stream_;
  const data::Normalisation normalise_;
  const data::Batch now_;
  std::array<Buffer, 2> buffers_;
  size_t next_ = 0;
};

size_t free_memory(const c10::Device& device) {
  return c10::getDeviceAllocator(device.type())->getMemoryInfo(device.index()).first;
}

}  // namespace

std::unique_ptr<BatchFeed> make_batch_feed(data::Loader loader, const c10::Device& device) {
  if (device.is_cpu()) return std::make_unique<HostFeed>(std::move(loader));
  const auto& set = loader.dataset();
  if (!set.is_streamed() && set.augmentation.is_shift() &&
      set.images.nbytes() + set.labels.nbytes() <= free_memory(device) / kShareOfFreeMemory) {
    return std::make_unique<ResidentFeed>(std::move(loader), device);
  }
  return std::make_unique<StreamedFeed>(std::move(loader), device);
}

}  // namespace prunex::train
