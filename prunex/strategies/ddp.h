// Distributed data parallel: the mean of all gradients in every step, while backward still runs.
#pragma once

#include <memory>

#include "prunex/strategies/gradient_buckets.h"
#include "prunex/strategies/gradient_strategy.h"
#include "prunex/strategies/payload.h"
#include "prunex/strategies/rail_exchange.h"

namespace prunex::strategies {

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
