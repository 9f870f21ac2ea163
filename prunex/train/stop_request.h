// Asking a run to end early.
#pragma once

#include <atomic>
#include <stdexcept>
#include <string>

namespace prunex::train {

/// Asks train() to end after the next exchange, with a checkpoint. One rank that is asked ends all.
class StopRequest {
 public:
  /// From any thread. False if the run has nothing to keep: before its first step, and without checkpoints. Then
  /// whoever asks should end the process.
  bool ask(int signal) {
    if (!heard_) return false;
    signal_ = signal;
    return true;
  }
  /// What was asked with; 0 if nobody asked.
  int signal() const { return signal_; }

  /// For train().
  void hear() { heard_ = true; }

 private:
  std::atomic<bool> heard_ = false;
  std::atomic<int> signal_ = 0;
};

/// What train() ends with on all ranks after such a request; what() says how to go on.
struct Interrupted : std::runtime_error {
  Interrupted(const std::string& what, int by) : std::runtime_error(what), signal(by) {}
  int signal;
};

}  // namespace prunex::train
