// Distributed data parallel: the mean of all gradients in every step, while backward still runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "prunex/comm/communicator.h"
#include "prunex/strategies/exchange/payload.h"
#include "prunex/strategies/exchange/rail_exchange.h"
#include "prunex/strategies/gradients/gradient_strategy.h"
#include "prunex/tensors.h"

namespace prunex::strategies {

struct BucketSizes {
  int64_t first = 1 << 20;  ///< bytes: small, so that the first exchange starts early
  int64_t others = 25 << 20;
};

/// Every parameter has its place in one bucket, in the memory order of the parameter. Buckets are filled from the last
/// parameter on.
class GradientBuckets {
 public:
  GradientBuckets(const TensorDict& params, const BucketSizes& sizes);

  int count() const { return static_cast<int>(buffers_.size()); }
  at::Tensor& buffer(int bucket) { return buffers_[static_cast<size_t>(bucket)]; }
  /// Of the parameter's number in the dictionary.
  int bucket_of(int64_t parameter) const { return places_[static_cast<size_t>(parameter)].bucket; }
  /// Parameters in the bucket.
  int members(int bucket) const { return members_[static_cast<size_t>(bucket)]; }
  /// The parameter's place, in its shape and layout.
  at::Tensor view(int64_t parameter) const;

 private:
  struct Place {
    int bucket = 0;
    comm::Range range;
    std::vector<int64_t> sizes, strides;
  };

  std::vector<Place> places_;
  std::vector<at::Tensor> buffers_;
  std::vector<int> members_;
};

struct DdpOptions {
  Reporting reporting;
  ExchangeForm exchange = ExchangeForm::kSharded;  ///< kFlat: as ordinary DDP has it
  Payload payload = Payload::kFp32;                ///< between nodes; bf16 and fp16 halve the bytes and add up in fp32
  BucketSizes buckets;
};

/// Throws std::invalid_argument for a payload that ddp does not have.
void check(const DdpOptions& options);

/// As torch.nn.parallel.DistributedDataParallel (arXiv 2006.15704): gradients go in buckets, from the last parameter
/// on; as soon as backward has made all of a bucket, another thread averages it.
std::unique_ptr<Strategy> make_ddp(Replica& replica, comm::Hierarchy& ranks, const DdpOptions& options);

}  // namespace prunex::strategies
