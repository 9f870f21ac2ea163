// How ranks find each other through a store, and learn the shape of their run.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "prunex/comm/environment.h"
#include "prunex/comm/layout.h"
#include "prunex/comm/meet/socket.h"
#include "prunex/comm/meet/store.h"
#include "prunex/comm/traffic.h"

namespace prunex::comm {

struct Group;

/// One rank's time to join, for all steps together. If it is to announce, a thread of its own says on standard error
/// what the rank waits for: after 5 s and then every 30 s, or every quarter of the time where that is less.
class Join {
 public:
  explicit Join(std::chrono::milliseconds limit, bool announce = false);
  ~Join();
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  Deadline deadline() const { return begin_ + limit_; }
  /// Until the deadline; at least 1 ms.
  std::chrono::milliseconds left() const;
  bool over() const { return std::chrono::steady_clock::now() >= deadline(); }
  /// "300 s"
  std::string limit() const;

  /// What is waited for from now on and why, as a clause, such as "missing rank 2"; empty: nothing. From any thread.
  void waits_for(const std::string& what);

 private:
  void announce();

  const std::chrono::milliseconds limit_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string what_;
  bool over_ = false;
  std::thread thread_;
};

/// Where ranks meet, how long they may take to, and what they prove to each other.
struct Meeting {
  Store& store;
  Join& join;
  Privacy privacy = {};
  PortRange ports = {};
};

/// What one process of a run has of its store: the client, and on the rank that hosts it the server.
struct RunStore {
  std::unique_ptr<StoreServer> server;
  std::unique_ptr<Store> client;
};

/// Hosts the run's store or connects to it. The server listens on what MASTER_ADDR stands for on this machine and on
/// the first of the interfaces, and nowhere else. With a secret, torchrun's store, which asks for none, only says where
/// rank 0 hosts another one. Throws std::runtime_error if the store cannot be had in time.
RunStore meet(const Environment& environment, const std::vector<std::string>& interfaces, const Privacy& privacy,
              const PortRange& ports, Join& join);

/// Every rank leaves a card under the topic, which no two exchanges share, and reads those of all, in rank order.
/// Throws std::runtime_error that names the ranks whose cards did not come in time.
std::vector<std::string> exchange_cards(const Meeting& meeting, const std::string& topic, const Place& place,
                                        const std::string& card);

/// What another rank wrote, fit to be shown: short, and without control characters.
std::string shown(const std::string& text);

/// The nodes that the seats of all ranks, in rank order, add up to. Throws std::invalid_argument that names the first
/// rank that breaks the order: ranks are numbered node by node, and from 0 on in each.
std::vector<int> node_sizes_of(const std::vector<Seat>& seats);

/// The layout of the run that a launcher started, on one site; all of its ranks must call. Throws like exchange_cards
/// and node_sizes_of.
Layout find_layout(const Environment& environment, const Meeting& meeting);

/// Connects the members of a group pairwise, over this rank's address; all must call. A connection counts only if both
/// ends prove that they know the run's secret and a number of the one who answers, which its caller read in the store:
/// whoever tries ports is turned away and holds nobody up. Throws std::runtime_error that names a rank that did not
/// come. Returned by their ranks in the group.
std::map<int, Link> connect_peers(const Group& group, const std::string& address, const Meeting& meeting);

}  // namespace prunex::comm
