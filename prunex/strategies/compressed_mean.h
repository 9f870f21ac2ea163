// A mean over nodes whose messages are rounded, with error feedback on both legs.
#pragma once

#include <ATen/core/Tensor.h>

#include "prunex/comm/communicator.h"
#include "prunex/strategies/payload.h"

namespace prunex::strategies {

/// What earlier messages left out, entry by entry of the buffer: of mine, and of the means that I sent to all.
struct Feedback {
  at::Tensor sent, returned;
};

/// buffer <- about its mean over the group, bit-identical on all ranks. Every rank owns a share of the entries: it
/// receives the others' encoded values of it, adds them up in fp32 in the order of ranks (its own as they are), and
/// sends the encoded mean to all. Both legs together send 2(n-1)/n of the encoded buffer per rank, as an all-reduce
/// does. `extent` is the whole buffer's; one-dimensional fp32. With feedback (buffers like `buffer`) whatever a message
/// leaves out is added to the next one: over many exchanges nothing is lost.
void compressed_mean(comm::Communicator& group, const Codec& codec, at::Tensor& buffer, Extent extent,
                     Feedback* feedback = nullptr);

/// What one rank sends for it.
int64_t compressed_mean_bytes(const Codec& codec, Extent extent, comm::Place place);

}  // namespace prunex::strategies
