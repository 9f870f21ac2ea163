// Programs that this process starts, and signals that it reads.
#pragma once

#include <sys/signalfd.h>
#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "prunex/comm/meet/socket.h"

namespace prunex::launch {

/// The path of the running executable.
inline constexpr const char* kThisProgram = "/proc/self/exe";

/// Blocks signals, which come through a descriptor instead, as long as it lives. From the main thread, before others
/// start.
class BlockedSignals {
 public:
  explicit BlockedSignals(const std::vector<int>& signals);
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  int descriptor() const { return descriptor_.fd(); }
  const sigset_t& previous() const { return previous_; }
  /// One that has come, without waiting.
  std::optional<signalfd_siginfo> next() const;

 private:
  sigset_t previous_;
  comm::Socket descriptor_;
};

struct ProcessOptions {
  std::string program = kThisProgram;
  std::vector<std::string> words = {};             ///< the first is its name
  std::vector<std::string> environment = {};       ///< NAME=value, beside this process's own, which they override
  std::optional<sigset_t> blocked = {};            ///< signals that are blocked in it; none
  int dies_by = SIGTERM;                           ///< what it gets when this process ends, however that is
  bool keeps_output = false, keeps_error = false;  ///< its standard output or error is this process's
};

/// A process whose output and error, as far as it does not keep them, arrive through one descriptor. It is killed with
/// this object; the thread that started it must live as long.
class Process {
 public:
  /// Throws std::runtime_error; `what` is what messages call it.
  Process(const std::string& what, const ProcessOptions& options);
  ~Process();
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;

  /// -1 at the end of its output, and if it keeps all.
  int descriptor() const { return descriptor_; }
  /// What there is, without waiting.
  std::string read();
  /// The lines that were completed; carriage returns end lines, too.
  std::vector<std::string> read_lines();
  /// Whether it has ended; then status() is that of waitpid.
  bool ended();
  int status() const { return status_; }
  void signal(int number) const;

 private:
  pid_t pid_ = 0;
  int descriptor_ = -1;
  int status_ = 0;
  std::string partial_;
};

/// Runs it to its end. "" for success, else what its last line of output or error says, or what ended it.
std::string error_of_run(const ProcessOptions& options);

}  // namespace prunex::launch
