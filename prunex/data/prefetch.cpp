#include "prunex/data/prefetch.h"

#include <ATen/ATen.h>

#include <utility>

#include "prunex/data/image_stream.h"

namespace prunex::data {

Batch empty_batch(const Dataset& dataset, int64_t size, at::ScalarType type) {
  auto shape = dataset.image_shape();
  shape.insert(shape.begin(), size);
  return {at::empty(shape, type, at::kStrided, at::kCPU, false, at::MemoryFormat::ChannelsLast),
          at::empty({size}, at::kLong)};
}

Prefetch::Prefetch(const Dataset& dataset, const std::vector<int64_t>& own)
    : dataset_(dataset), pixels_(dataset_, own), workers_(dataset.streamed.stream->options().threads) {}

void Prefetch::begin(Cursor place, const PartsOf& parts_of) {
  auto parts = parts_of(place);
  const auto size = static_cast<int64_t>(parts.size());
  const Batch batch = empty_batch(dataset_, size, at::kByte);
  const auto make = [this, batch, parts = std::move(parts)](int64_t i) {
    uint8_t* out = batch.images.data_ptr<uint8_t>() + i * pixels_.image_bytes();
    const int64_t taken = pixels_.augmented(parts[i].number, parts[i].draws, out);
    batch.labels.data_ptr<int64_t>()[i] = dataset_.labels.const_data_ptr<int64_t>()[taken];
  };
  ahead_.push_back({place, batch, workers_.start(size, make)});
}

Batch Prefetch::take(Cursor place, const Loader& loader, const PartsOf& parts_of) {
  if (!ahead_.empty() && !(ahead_.front().place == place)) {
    workers_.clear();
    ahead_.clear();
  }
  if (ahead_.empty()) begin(place, parts_of);
  const auto wanted = static_cast<size_t>(dataset_.streamed.stream->options().prefetch) + 1;
  while (ahead_.size() < wanted) begin(loader.after(ahead_.back().place), parts_of);
  const Ahead first = std::move(ahead_.front());
  ahead_.pop_front();
  workers_.wait(*first.job);
  return first.batch;
}

}  // namespace prunex::data
