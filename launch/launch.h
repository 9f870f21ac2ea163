// The local launcher: the ranks of a run as processes on this machine, and how they are asked to end.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "prunex/comm/layout.h"
#include "prunex/comm/privacy.h"
#include "prunex/comm/watch/signals.h"

namespace prunex::launch {

struct LaunchOptions {
  comm::Layout shape;    ///< of virtual nodes; its rank does not matter
  int threads = 1;       ///< per rank: OMP_NUM_THREADS
  bool elastic = false;  ///< the ranks go on when some of them fail, and end well if one does
  /// Of an elastic run: words behind the others with which the ranks of a lost node start again, as a run of that node
  /// alone; none: it stays away.
  std::vector<std::string> words_to_join = {};
  comm::Privacy privacy = {};  ///< theirs, which they learn as this process did
};

/// Of a program's arguments.
std::vector<std::string> words_of(char** argv);

/// Throws std::invalid_argument if the shape has far more ranks than this machine has processors: such as a mistyped
/// --nodes, which would bring it to a standstill.
void expect_room_for(const comm::Layout& shape);

/// Starts one process of this executable per rank, with these arguments and torchrun's variables, hosts their store
/// on a free port, and waits for them. Call it from the main thread before other threads start. Ctrl-C, SIGTERM and
/// SIGHUP are passed on, a second one kills; SIGUSR1 is passed on, too. If a rank fails, the others get SIGTERM and a
/// second later SIGKILL; all are killed if this process is. Of an elastic run the ranks of a node of which one fails
/// are killed, and start again if there are words to join with: at once, later and later if the node fails soon, and
/// not after the third such time. Standard output is shared. Standard error of rank 0 appears as it is, that of the
/// others with a prefix such as "[rank 3] "; of a failed run only the lines of the rank that failed first.
///
/// Returns the exit status: 0 if all ranks returned 0, the status of the rank that failed first, 1 if it was killed,
/// 128 + the signal if this process was interrupted, or ranks ended so because they were asked to. Throws
/// std::runtime_error if the ranks cannot be started.
int launch_ranks(const LaunchOptions& options, const std::vector<std::string>& words);

// In a rank, or a process without ranks: Ctrl-C and its like as the request to end a training with a checkpoint.

/// A terminal and a launcher may both send a signal, and `timeout` sends it twice: what comes so close together is one.
inline constexpr std::chrono::seconds kOneSignal{2};

/// Lets SIGINT, SIGTERM and SIGHUP ask for the end of the run, which comes after its next exchange. Where `ask` says
/// that there is nothing to keep, and from the second on, they end the process as they would without this. Those that
/// were ignored stay ignored (nohup). To be made before other threads start.
class StopSignals {
 public:
  /// `ask` takes the signal: true if the run will end. `says`: whether this process tells what it waits for, on
  /// standard error.
  StopSignals(std::function<bool(int)> ask, bool says);

 private:
  void receive(int signal);

  const std::function<bool(int)> ask_;
  const bool says_;
  std::mutex mutex_;
  bool asked_ = false;
  std::chrono::steady_clock::time_point asked_at_;
  std::vector<std::unique_ptr<comm::SignalThread>> threads_;
};

/// Whether the process was started with the signal ignored.
bool ignores(int signal);

/// Whether a process with this status of waitpid ended because it was asked to, in good order: 128 + the signal.
bool ended_on_request(int status);

}  // namespace prunex::launch
