#include "launch/stop_signals.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "prunex/say.h"

namespace prunex::launch {
namespace {

constexpr int kStops[] = {SIGINT, SIGTERM, SIGHUP};

/// As the signal does by itself, so that whoever waits for this process sees what ended it. A container's first process
/// the kernel does not end so.
[[noreturn]] void end_by(int signal) {
  std::signal(signal, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  raise(signal);
  _exit(128 + signal);
}

}  // namespace

StopSignals::StopSignals(std::function<bool(int)> ask, std::string says)
    : ask_(std::move(ask)), says_(std::move(says)) {
  std::vector<int> stops;
  for (const int signal : kStops) {
    if (!ignores(signal)) stops.push_back(signal);
  }
  // all before the first thread, which would take the others
  for (const int signal : stops) comm::block_signal(signal);
  for (const int signal : stops) {
    threads_.push_back(std::make_unique<comm::SignalThread>(signal, [this, signal] { receive(signal); }));
  }
}

void StopSignals::receive(int signal) {
  const std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (asked_ && now - asked_at_ < kOneSignal) return;
  if (asked_ || !ask_(signal)) return end_by(signal);
  asked_ = true;
  asked_at_ = now;
  if (says_.empty()) return;
  const char* begin = isatty(STDERR_FILENO) != 0 ? "\n" : "";
  say(fmt::format("{}prunex: signal {}: {}; a second one ends it now\n", begin, signal, says_));
}

bool ignores(int signal) {
  struct sigaction current = {};
  sigaction(signal, nullptr, &current);
  return current.sa_handler == SIG_IGN;
}

std::vector<int> and_stops(std::vector<int> signals) {
  for (const int signal : kStops) {
    if (signal != SIGHUP || !ignores(SIGHUP)) signals.push_back(signal);
  }
  return signals;
}

bool ended_on_request(int status) {
  if (!WIFEXITED(status)) return false;
  for (const int signal : kStops) {
    if (WEXITSTATUS(status) == 128 + signal) return true;
  }
  return false;
}

}  // namespace prunex::launch
