// Connects the ranks of a run: processes, or threads of one.
#pragma once

#include <c10/core/DeviceType.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "prunex/comm/environment.h"
#include "prunex/comm/hierarchy.h"
#include "prunex/comm/store.h"

namespace prunex::comm {

struct ConnectOptions {
  /// Network interfaces to use, such as eth0: rail p uses number p mod their count, everything else the first. None:
  /// loopback if all ranks are on one machine, else the interface that this machine's host name resolves to.
  std::vector<std::string> interfaces = {};
  /// How long an operation may wait for one message of another rank. It must exceed the longest time by which ranks
  /// arrive apart: the slowest rank's local steps, or its evaluation.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  /// How long the ranks may take to come together at the start.
  std::chrono::milliseconds join_timeout = std::chrono::minutes(5);
  /// Whether the ranks of a node talk through shared memory where they can; else through loopback.
  bool shared_memory = true;
  /// CUDA: tensors may lie on the CPU or on this rank's GPU, which becomes the calling thread's device; the i-th rank
  /// of a machine has its i-th GPU, in turn. NCCL carries them in groups without ranks that share one. Another kind of
  /// device: the first one of that kind, whose tensors go by way of the CPU.
  c10::DeviceType device = c10::DeviceType::CPU;
  /// Ranks of this machine that are connected elsewhere and have GPUs before this one's.
  int ranks_before = 0;
  /// What the ranks prove to each other.
  Privacy privacy = {};
  /// Where this process listens for others: one port at a time, with `elastic` one more as long as it lives.
  PortRange ports = {};
  /// Silence after which a rank counts as lost; 0: no heartbeat.
  std::chrono::milliseconds heartbeat_timeout{5000};
  /// Whether a rank that waits for others at the start says on standard error for whom, and why.
  bool announce = false;
  /// Whether ranks write reports when one is lost or does not answer, and at which signal. It is blocked
  /// in the calling thread: call before other threads start.
  bool reports = false;
  int report_signal = 0;
};

/// All ranks must call with the same layout, but for the rank. Returns when all are connected; the store is not needed
/// any more then. Throws std::runtime_error that names the ranks that did not come, std::invalid_argument for an
/// unusable interface, a GPU that is not there, or ranks that disagree about the layout. With encryption the process
/// ignores SIGPIPE unless it handles it: OpenSSL writes to sockets whose other end may be gone.
Hierarchy connect(const Layout& layout, Store& store, const ConnectOptions& options = {});

/// The same, for a process that a launcher started, or a single rank of none: Environment(). The environment's
/// interfaces stand in for none, as PRUNEX_SECRET does for no secret. Again only where rank 0 hosts the store:
/// torchrun's keeps what was left there. Throws std::invalid_argument if the launcher did not start the nodes that are
/// wanted, whose sites are taken over.
Hierarchy connect(const Environment& environment, ConnectOptions options = {},
                  const std::optional<Layout>& wanted = {});

/// Runs body once per rank of the shape (whose own rank does not matter), each on its own thread with ATen at one
/// thread, connected over loopback. Returns when all are done. If ranks throw, the connections of the first one are
/// closed, so that the others fail instead of waiting, and its exception is rethrown. Threads need no heartbeat.
void run_ranks(const Layout& shape, const std::function<void(Hierarchy&)>& body,
               const ConnectOptions& options = {.heartbeat_timeout = std::chrono::milliseconds(0)});

/// The same, with the same number of ranks on every node.
void run_ranks(int nodes, int ranks_per_node, const std::function<void(Hierarchy&)>& body,
               const ConnectOptions& options = {.heartbeat_timeout = std::chrono::milliseconds(0)});

/// Throws std::invalid_argument unless this process sees a GPU.
void check_gpu();

/// What a rank of this run has open at most, beside its files.
int descriptors_of_rank(const Layout& layout);

/// Raises the process's limit of open files, as far as that is permitted, until so many more can be opened. Throws
/// std::runtime_error if they cannot.
void reserve_descriptors(int more);

}  // namespace prunex::comm
