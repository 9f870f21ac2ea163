// Where a rank can be reached as long as its process lives, whatever becomes of its groups.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "prunex/comm/elastic/call.h"

namespace prunex::comm {

/// A node that asks to be let in: all of its ranks, in their order.
using NewNode = std::vector<Newcomer>;

/// A thread that listens on a port of its own. Callers who know the key and bring a report are kept, and hear every
/// now and then that this process lives; so do those who ask just that, and newcomers, unless the run is led by another
/// rank: then they are sent to its door. Who is not in the newest roster is told so and sent away. Others are turned
/// away; those who say nothing make room for others.
class Door {
 public:
  /// On a free port, one of these, if the place has 0. `pause`: between two signs of life. Throws std::runtime_error if
  /// the port is taken.
  Door(const Endpoint& place, const LinkKey& key, std::chrono::milliseconds pause, const PortRange& ports = {});
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  const Endpoint& endpoint() const { return endpoint_; }

  /// Of the callers that are kept, the newest report of each.
  std::vector<Report> reports() const;
  /// Those in the roster hear `message`, the others that they are out of it. None of them is lost if this rank ends.
  void tell(const Roster& roster, const std::string& message);
  /// Ends the conversations with those who are kept: they have to call again.
  void dismiss();
  /// The newest roster in which all ranks have met, and who lets newcomers in.
  void set_formed(const Roster& roster, const Endpoint& leader);

  /// Those who wait to be let in, in the order in which they came.
  std::vector<NewNode> newcomers() const;
  /// Whether the rank with this door does.
  bool is_waiting(const Endpoint& newcomer) const;
  /// Lets a node in, with this message, or sends it away, with none.
  void answer(const NewNode& node, const std::string& message);
  /// What everybody may fetch from now on; null: nothing. Who has begun to gets all of it.
  void offer(std::shared_ptr<const std::string> state);

 private:
  class Loop;
  Endpoint endpoint_;
  std::unique_ptr<Loop> loop_;
};

}  // namespace prunex::comm
