// A communicator over Gloo's TCP transport.
#pragma once

#include <memory>

#include "prunex/comm/communicator.h"
#include "prunex/comm/gloo/ring.h"
#include "prunex/comm/group.h"
#include "prunex/comm/store.h"

namespace gloo::transport {
class Device;
}

namespace prunex::comm {

/// A communicator whose ring can be fed and read piece by piece.
class RingCommunicator : public Communicator {
 public:
  using Communicator::Communicator;

  /// ring_all_reduce over this group. A group of one combines and publishes its pieces.
  virtual void all_reduce_pieces(FlatBuffer buffer, Range range, int64_t chunks, const RingHooks& hooks) = 0;
};

/// Connects the group's ranks pairwise; all of them must call. device may be null for a group of one.
std::unique_ptr<RingCommunicator> make_gloo_communicator(const Group& group, Store& store,
                                                         std::shared_ptr<gloo::transport::Device> device,
                                                         const Timeouts& timeouts, const Guard& guard);

}  // namespace prunex::comm
