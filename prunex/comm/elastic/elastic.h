// Runs that outlive their nodes: those who are left find each other, agree on where they are, and connect anew; new
// ones join.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "prunex/comm/elastic/agreement.h"
#include "prunex/comm/elastic/door.h"
#include "prunex/comm/elastic/invitation.h"
#include "prunex/comm/hierarchy.h"

namespace prunex::comm {

class StoreServer;

struct ElasticOptions {
  std::chrono::milliseconds silence{5000};  ///< that loses a node
  /// How long a node that lives may take until it comes: the longest local steps, or an evaluation.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  int least_nodes = 0;       ///< fewer do not go on; 0: a quorum is enough
  int most_nodes = 0;        ///< newcomers wait while there are so many; 0: any number
  int64_t transactions = 0;  ///< that all ranks have already
  /// Whether who has joined takes part in the next transaction, in which the others wait until it has what it needs.
  bool join_at_once = false;
  /// How long a node that has no quorum looks for the others.
  std::chrono::milliseconds patience = std::chrono::minutes(1);
  /// How the run was started, for newcomers who know its secret; empty: there is no entrance.
  std::string config = {};
  /// What is worth a line on standard error; may be null.
  std::function<void(const std::string&)> say = nullptr;
};

/// Between two signs of life at doors.
inline std::chrono::milliseconds pause_of(const ElasticOptions& options) {
  return std::clamp(options.silence / 5, std::chrono::milliseconds(1), std::chrono::milliseconds(300));
}

/// A change of who takes part.
struct Change {
  Roster roster;          ///< from now on
  std::vector<int> lost;  ///< nodes
  int ranks_lost = 0;     ///< theirs that took part in transactions
  std::vector<int> joined;
  int64_t transactions = 0;  ///< that all have
  double seconds = 0;        ///< from the change's begin to its end
};

/// The others went on without this node.
struct LeftBehind : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Where a rank of an elastic run listens for the others and for nodes that join: a rank that is alone has not been
/// connected to anybody, and listens on its first interface.
std::string address_of_doors(const Hierarchy& ranks);

/// One rank's part in the membership of a run. A node is what fails: it is lost with any of its ranks. A transaction is
/// what all ranks do together and have all of or none, such as an exchange. Protocol and rules: docs/elastic.md.
class Elastic {
 public:
  /// `ranks`, which changes replace in place, is a run's first hierarchy. Nodes stay in their sites; while these are
  /// not equal shares of the nodes that are left, the layout has one site. Collective. Throws std::invalid_argument if
  /// it cannot connect_others().
  Elastic(Hierarchy& ranks, const ElasticOptions& options);
  /// `ranks` is one node's, which is to join() a run that has begun. Throws NobodyThere.
  Elastic(Hierarchy& ranks, const ElasticOptions& options, RunDoors run);
  ~Elastic();
  Elastic(const Elastic&) = delete;
  Elastic& operator=(const Elastic&) = delete;

  /// This node's number, which it keeps.
  int node() const { return node_; }
  const Roster& roster() const { return formed_; }

  /// All ranks have that transaction, the one after the last, with this result. Whether a node waits to be let in:
  /// then all ranks call admit(), or none. Collective. Throws std::logic_error if results differ; if a rank is lost,
  /// what groups throw: then only regroup() tells whether the transaction counts.
  bool commit(int64_t transaction, uint64_t hash);

  /// This rank has that transaction, the one after the last, which no rank can have that had not entered all before
  /// it: so all have those, and the next enter() or commit() says that all have this one.
  void enter(int64_t transaction);

  /// Lets the node in. `state` is what it needs to go on from this transaction, and may fetch until the next one
  /// counts. Collective. Nobody joined: it has gone meanwhile. If a rank is lost it throws what groups throw, and
  /// regroup() is called for.
  Change admit(std::string state);
  /// The newcomer's part: waits to be let in, as long as somebody of the run lives. The next transaction is its first;
  /// until then it holds what it fetches, and contributes nothing (Hierarchy::share), unless `join_at_once`. Collective
  /// over its node. Throws NobodyThere; LeftBehind if the run does not let it in.
  Change join();
  /// What admit() was given, from one of the others. Collective over the node.
  std::string fetch();

  /// Ranks whose work the next transaction is the mean of: all but those of a node that has just joined, unless
  /// `join_at_once`. The first ones.
  int contributors() const;
  bool contributes() const { return contributes(node_); }
  /// For nodes to come.
  RunDoors doors() const;
  /// Where newcomers who know the secret ask what run this is (ask_for_invitation()), of a node's first rank: at the
  /// run's own port of this node's address, or a free one while that is taken. Nothing of a run without a secret.
  std::optional<Endpoint> entrance() const;

  /// Whether what an operation threw came of a lost rank.
  bool has_lost() const;

  /// Ends this rank's groups and makes those of the ranks that are left. All of them call, each when it notices. Throws
  /// LeftBehind, std::runtime_error if those who are left may not go on.
  Change regroup();

 private:
  struct Admission;
  struct Decision {
    Roster roster;
    int64_t committed = 0;
    Endpoint store;

    std::string text() const;
    static Decision from_text(const std::string& text);
  };
  class Inquiries;
  class Escort;

  void open_door(const std::string& address);
  void open_entrance();
  Report report() const;
  LinkKey door_key() const;
  bool leads() const { return ranks_.layout.rank == 0; }
  std::optional<NewNode> next_newcomer() const;
  Admission admission_of(const NewNode& node);
  void introduce(const Admission& admission);
  Admission knock();
  Change settle(std::optional<Decision> decision);
  void weigh();
  bool contributes(int node) const { return options_.join_at_once || joined_at_.count(node) == 0; }
  const Endpoint& door_of(int node) const { return doors_[static_cast<size_t>(node)].front(); }
  std::chrono::milliseconds patience_with(int node) const;
  std::string without_this_node() const;
  int leader(const Missing& missing) const;
  Decision seek();
  std::optional<Decision> follow(int node, Missing& missing, std::set<int>& late);
  std::optional<Decision> lead(Missing& missing);
  Decision decided(const Verdict& verdict);
  Endpoint open_store(const Roster& roster, int newcomers = 0);
  Hierarchy connect_in(const Decision& decision) const;
  Layout layout_of(const Roster& roster) const;
  int sites_of(const Roster& roster) const;
  void say(const std::string& line) const;

  Hierarchy& ranks_;
  const ElasticOptions options_;
  int node_ = 0, local_rank_ = 0;
  RanksOf ranks_of_;                          // by node
  std::vector<int> site_of_;                  // by node; empty: there is one
  std::vector<std::vector<Endpoint>> doors_;  // by node and local rank
  std::string token_;
  uint16_t port_ = 0;  // of entrances
  RunDoors run_;       // of a newcomer, before it has joined
  Roster formed_;
  std::vector<Roster> agreed_;
  int64_t seen_ = 0;
  int64_t committed_ = 0;
  std::map<int, int64_t> joined_at_;  // transactions that counted when a node joined, until the next one does
  bool entered_ = false;
  std::optional<int> silent_;           // the node that is lost because it said nothing, while the others regroup
  std::unique_ptr<StoreServer> store_;  // of a leader, while the others connect
  std::unique_ptr<Door> door_, entrance_;
};

}  // namespace prunex::comm
