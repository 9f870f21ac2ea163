// In a rank, or a process without ranks: Ctrl-C and its like as the request to end a training with a checkpoint.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "prunex/comm/watch/signals.h"

namespace prunex::launch {

/// A terminal and a launcher may both send a signal, and `timeout` sends it twice: what comes so close together is one.
inline constexpr std::chrono::seconds kOneSignal{2};

/// Lets SIGINT, SIGTERM and SIGHUP ask for the end of the run, which comes after its next exchange. Where `ask` says
/// that there is nothing to keep, and from the second on, they end the process as they would without this. Those that
/// were ignored stay ignored (nohup). To be made before other threads start.
class StopSignals {
 public:
  /// `ask` takes the signal: true if the run will end. `says`: what it waits for, told on standard error; "": nothing.
  StopSignals(std::function<bool(int)> ask, std::string says);

 private:
  void receive(int signal);

  const std::function<bool(int)> ask_;
  const std::string says_;
  std::mutex mutex_;
  bool asked_ = false;
  std::chrono::steady_clock::time_point asked_at_;
  std::vector<std::unique_ptr<comm::SignalThread>> threads_;
};

/// Whether the process was started with the signal ignored.
bool ignores(int signal);

/// These and SIGINT, SIGTERM and SIGHUP, for BlockedSignals: without SIGHUP if it was ignored, since a blocked signal
/// comes even under nohup.
std::vector<int> and_stops(std::vector<int> signals);

/// Whether a process with this status of waitpid ended because it was asked to, in good order: 128 + the signal.
bool ended_on_request(int status);

}  // namespace prunex::launch
