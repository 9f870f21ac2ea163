// How a rank learns who it is: the environment that torchrun and our launcher set.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "prunex/comm/hierarchy.h"
#include "prunex/comm/store.h"

namespace prunex::comm {

/// torchrun's variables; in brackets what stands in for a missing one.
struct Environment {
  int rank = 0;                ///< RANK
  int world_size = 1;          ///< WORLD_SIZE
  int local_world_size = 1;    ///< LOCAL_WORLD_SIZE [1: every rank is a node]
  int local_rank = 0;          ///< LOCAL_RANK [rank % local_world_size]
  int group_rank = 0;          ///< GROUP_RANK, the node [rank / local_world_size]
  std::string master_address;  ///< MASTER_ADDR
  uint16_t master_port = 0;    ///< MASTER_PORT
  bool store_hosted = false;   ///< TORCHELASTIC_USE_AGENT_STORE: the launcher hosts the store, else rank 0 does
  int restart_count = 0;       ///< TORCHELASTIC_RESTART_COUNT [0]
  std::string interface;       ///< GLOO_SOCKET_IFNAME [empty]
};

/// The value of a variable or null.
using Lookup = std::function<const char*(const char* name)>;

/// Nothing if RANK or WORLD_SIZE is not set: this process was not started as one of several ranks. Throws
/// std::invalid_argument that names a malformed or missing variable.
std::optional<Environment> read_environment();
std::optional<Environment> read_environment(const Lookup& lookup);

/// Throws std::invalid_argument unless all nodes have the same number of ranks, numbered node by node.
Layout layout_of(const Environment& environment);

/// Hosts the run's store or connects to it. Throws std::runtime_error if it does not answer within the timeout.
std::unique_ptr<Store> make_store(const Environment& environment, std::chrono::milliseconds timeout);

}  // namespace prunex::comm
