// Starts the processes that a launcher supervises.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "launch/launch.h"
#include "launch/process.h"
#include "prunex/comm/meet/store.h"

namespace prunex::launch {

struct Rank {
  int number;
  Process process;
  bool reaped = false;
};

/// Starts ranks, and hosts the stores at which they meet.
class Starter {
 public:
  Starter(const LaunchOptions& options, std::vector<std::string> words, const BlockedSignals& signals)
      : options_(options), words_(std::move(words)), signals_(signals) {}

  const LaunchOptions& options() const { return options_; }

  /// Asked after every rank whether to start more.
  using GoesOn = std::function<bool()>;

  void start_all(std::list<Rank>& ranks, const GoesOn& goes_on);
  /// Ranks of one node, numbered as before, as a run of their own.
  void start_again(int node, std::list<Rank>& ranks, const GoesOn& goes_on);

 private:
  using Store = std::unique_ptr<comm::StoreServer>;

  void start(comm::Layout layout, int first, const std::vector<std::string>& words, Store& store,
             std::list<Rank>& ranks, const GoesOn& goes_on);

  const LaunchOptions& options_;
  const std::vector<std::string> words_;
  const BlockedSignals& signals_;
  Store all_meet_at_;
  std::map<int, Store> nodes_meet_at_;  ///< of nodes that were started again
};

}  // namespace prunex::launch
