// Runs that outlive their nodes: those who are left find each other, agree on where they are, and connect anew.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "prunex/comm/elastic/agreement.h"
#include "prunex/comm/elastic/door.h"
#include "prunex/comm/hierarchy.h"

namespace prunex::comm {

class StoreServer;

struct ElasticOptions {
  std::chrono::milliseconds silence{1500};  ///< that loses a node
  /// How long a node that lives may take until it comes: the longest local steps, or an evaluation.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  int least_nodes = 0;    ///< fewer do not go on; 0: a quorum is enough
  int64_t exchanges = 0;  ///< that all ranks have already
  /// How long a node that has no quorum looks for the others.
  std::chrono::milliseconds patience = std::chrono::minutes(1);
  /// What is worth a line on standard error; may be null.
  std::function<void(const std::string&)> say = nullptr;
};

/// A change of who takes part.
struct Change {
  Roster roster;          ///< from now on
  std::vector<int> lost;  ///< nodes
  int64_t exchange = 0;   ///< the last one that all have
  bool adopts = false;    ///< it is one that this rank had entered
  double seconds = 0;     ///< from regroup()'s begin to its end
};

/// The others went on without this node.
struct LeftBehind : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// One rank's part in the membership of a run. A node is what fails: it is lost with any of its ranks. Protocol and
/// rules: docs/communication.md, "Elastic runs".
class Elastic {
 public:
  /// `ranks`, which regroup() replaces in place, is a run's first hierarchy. Collective. Throws std::invalid_argument
  /// if it cannot connect_others().
  Elastic(Hierarchy& ranks, const ElasticOptions& options);
  ~Elastic();
  Elastic(const Elastic&) = delete;
  Elastic& operator=(const Elastic&) = delete;

  /// This node's number, which it keeps.
  int node() const { return node_; }
  const Roster& roster() const { return formed_; }

  /// All ranks have exchange `exchange`, the one after the last, with this result. Collective. Throws std::logic_error
  /// if results differ; if a rank is lost, what groups throw: then only regroup() tells whether the exchange counts.
  void commit(int64_t exchange, uint64_t hash);

  /// Whether what an operation threw came of a lost rank.
  bool has_lost() const;

  /// Ends this rank's groups and makes those of the ranks that are left. All of them call, each when it notices. Throws
  /// LeftBehind, std::runtime_error if those who are left may not go on.
  Change regroup();

 private:
  struct Decision {
    Roster roster;
    int64_t committed = 0;
    Endpoint store;

    std::string text() const;
    static Decision from_text(const std::string& text);
  };
  class Lead;

  Report report() const;
  int leader(const Missing& missing) const;
  Decision seek();
  Decision follow(int node, Missing& missing, bool& heard);
  Decision lead(Missing& missing);
  Decision decided(const Verdict& verdict);
  Hierarchy connect_in(const Decision& decision) const;
  Layout layout_of(const Roster& roster) const;
  void say(const std::string& line) const;

  Hierarchy& ranks_;
  const ElasticOptions options_;
  int node_ = 0, local_rank_ = 0;
  RanksOf ranks_of_;                          // by node
  std::vector<std::vector<Endpoint>> doors_;  // by node and local rank
  LinkKey door_key_, store_key_;
  Roster formed_;
  std::vector<Roster> agreed_;
  int64_t seen_ = 0;
  int64_t committed_ = 0;
  bool entered_ = false;
  std::unique_ptr<StoreServer> store_;  // of a leader, while the others connect
  std::unique_ptr<Door> door_;
};

}  // namespace prunex::comm
