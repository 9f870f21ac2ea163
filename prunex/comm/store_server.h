// Hosts the store through which the ranks of a run find each other.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "prunex/comm/socket.h"

namespace prunex::comm {

struct StoreServerOptions {
  std::vector<std::string> hosts = {"127.0.0.1"};  ///< own numeric addresses to listen on, and no others
  uint16_t port = 0;                               ///< 0: a free one
  int ranks = 1;                                   ///< what it holds, and for how many, is bounded by them
  std::string secret = {};                         ///< what clients must know; empty: nothing
};

/// A thread that serves clients until this is destroyed or a client says that all ranks have joined: then it closes
/// everything. Keys are written once. Whoever sends what is no request is turned away; whoever is silent holds nobody
/// up; it keeps at most 2 connections per rank and 64 KiB of values per rank, and some spare.
class StoreServer {
 public:
  /// Throws std::runtime_error if it cannot listen.
  explicit StoreServer(const StoreServerOptions& options);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  uint16_t port() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace prunex::comm
