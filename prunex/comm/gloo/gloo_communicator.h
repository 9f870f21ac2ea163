// A communicator over Gloo's TCP transport.
#pragma once

#include <chrono>
#include <memory>

#include "prunex/comm/communicator.h"
#include "prunex/comm/gloo/device.h"
#include "prunex/comm/gloo/ring.h"
#include "prunex/comm/group.h"
#include "prunex/comm/rendezvous.h"

namespace prunex::comm {

/// A communicator whose ring can be fed and read piece by piece.
class RingCommunicator : public Communicator {
 public:
  using Communicator::Communicator;

  /// ring_all_reduce over this group. A group of one combines and publishes its pieces.
  virtual void all_reduce_pieces(FlatBuffer buffer, Range range, int64_t chunks, const RingHooks& hooks) = 0;
};

/// Connects the group's ranks pairwise; all of them must call. An operation waits for a message for `timeout` at most.
std::unique_ptr<RingCommunicator> make_gloo_communicator(const Group& group, Meeting meeting, const Network& network,
                                                         std::chrono::milliseconds timeout, const Guard& guard);

}  // namespace prunex::comm
