// How a rank learns who it is: the environment that a launcher sets.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace prunex::comm {

/// Where a launcher put one rank.
struct Seat {
  std::optional<int> node;  ///< its node's index, if the launcher tells
  int local_rank = 0;
  int local_size = 1;  ///< ranks on its node
};

/// Who hosts the store: rank 0, prunex's own launcher, or torchrun, with a store of PyTorch's.
enum class StoreHost { kRankZero, kLauncher, kTorchrun };

/// PRUNEX_STORE_SECRET, which prunex's launcher sets beside torchrun's variables.
inline constexpr const char* kStoreSecret = "PRUNEX_STORE_SECRET";
inline constexpr const char* kRanksBefore = "PRUNEX_RANKS_BEFORE";

/// What a rank of several knows at its start. The variables, and what stands in for missing ones:
/// docs/running.md.
struct Environment {
  int rank = 0;
  int world_size = 1;
  Seat seat;
  std::string master_address;  ///< where the store is
  uint16_t master_port = 0;
  StoreHost store_host = StoreHost::kRankZero;
  std::string store_secret = {};        ///< what the store of prunex's launcher wants to hear
  int restart_count = 0;                ///< attempts before this one that used the same store
  int ranks_before = 0;                 ///< of a node that starts again: how many the machine's other nodes began with
  std::vector<std::string> interfaces;  ///< GLOO_SOCKET_IFNAME; none of prunex's launcher
};

/// The value of a variable or null.
using Lookup = std::function<const char*(const char* name)>;

/// What torchrun, mpirun of Open MPI or srun set, the first of them that did. Nothing if this process was not started
/// as one of several ranks; torchrun's only rank is one of several. Throws std::invalid_argument that names a malformed
/// or missing variable.
std::optional<Environment> read_environment();
std::optional<Environment> read_environment(const Lookup& lookup);

// What Slurm writes into its variables.

/// The first of a list of hosts: node01 of "node[01-03,7],gpu5". Nothing for text that is no such list.
std::optional<std::string> first_host(const std::string& hosts);

/// Tasks of every node: 2, 2, 2, 1 of "2(x3),1". Nothing for text that is no such list.
std::optional<std::vector<int>> tasks_per_node(const std::string& text);

/// Where the ranks of a job step meet, the same on all of them: 15000 + (job + 1009 step) mod 15000. That is below the
/// ports that Linux hands out by itself; neighbouring jobs and the steps of one job get different ones.
uint16_t port_of_step(int64_t job, int64_t step);

}  // namespace prunex::comm
