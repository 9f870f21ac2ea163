// A communicator over Gloo's TCP transport.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "prunex/comm/abort_switch.h"
#include "prunex/comm/communicator.h"
#include "prunex/comm/gloo/ring.h"
#include "prunex/comm/store.h"

namespace gloo::transport {
class Device;
}

namespace prunex::comm {

/// A group to be: its name, unique in the run, and its members by world rank, in the order of their ranks in the group.
struct Group {
  std::string name;
  std::vector<int> members;
  int rank = 0;  ///< mine, in the group
};

struct GlooTimeouts {
  std::chrono::milliseconds connect;
  std::chrono::milliseconds operation;
};

/// Who ends this rank's waits when another one is lost.
struct GlooGuard {
  std::shared_ptr<AbortSwitch> abort_switch;
  /// How long to wait, when a connection breaks, for the switch to tell why; 0 if nobody will.
  std::chrono::milliseconds patience{0};
};

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
                                                         const GlooTimeouts& timeouts, const GlooGuard& guard);

}  // namespace prunex::comm
