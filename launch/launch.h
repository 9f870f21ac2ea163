// The local launcher: the ranks of a run as processes on this machine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launch/process.h"
#include "prunex/comm/layout.h"
#include "prunex/comm/privacy.h"

namespace prunex::launch {

struct LaunchOptions {
  comm::Layout shape;    ///< of virtual nodes; its rank does not matter
  int threads = 1;       ///< per rank: OMP_NUM_THREADS
  bool elastic = false;  ///< the ranks go on when some of them fail, and end well if one does
  /// Of an elastic run: words behind the others with which the ranks of a lost node start again, as a run of that node
  /// alone; none: it stays away.
  std::vector<std::string> words_to_join = {};
  /// Of an elastic run: whether it has come so far that it outlives ranks; none: from the start on.
  std::function<bool()> has_begun = {};
  comm::Privacy privacy = {};  ///< theirs, which they learn as this process did
};

/// Of a program's arguments.
std::vector<std::string> words_of(char** argv);

/// Throws std::invalid_argument if the shape has far more ranks than this machine has processors: such as a mistyped
/// --nodes, which would bring it to a standstill.
void expect_room_for(const comm::Layout& shape);

/// Blocks the signals that launch_ranks waits for. From the main thread, before others start, which would take them:
/// those of CUDA, too.
BlockedSignals signals_of_launcher();

/// Starts one process of this executable per rank, with these arguments and torchrun's variables, hosts their store on
/// a free port, and waits for them. `signals`: signals_of_launcher(). Ctrl-C, SIGTERM and SIGHUP are passed on, a
/// second one kills; SIGUSR1 is passed on, too. If a rank fails, the others get SIGTERM and 0.7 s later SIGKILL; all
/// are killed if this process is. Of an elastic run the ranks of a node of which one fails are killed, and start again
/// if there are words to join with: at once, later and later if the node fails soon, and not after the third such time.
/// Standard output is shared. Standard error of rank 0 appears as it is, that of the others with a prefix such as
/// "[rank 3] "; of a failed run only the lines of the rank that failed first.
///
/// Returns the exit status: 0 if all ranks returned 0, the status of the rank that failed first, 1 if it was killed,
/// 128 + the signal if this process was interrupted, or ranks ended so because they were asked to. Throws
/// std::runtime_error if the ranks cannot be started.
int launch_ranks(const LaunchOptions& options, const std::vector<std::string>& words, const BlockedSignals& signals);

}  // namespace prunex::launch
