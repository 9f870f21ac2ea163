// Threads that take no signals, and one that takes them.
#pragma once

#include <functional>
#include <thread>

#include "prunex/comm/meet/socket.h"

namespace prunex::comm {

/// Of the calling thread: they go to those of who embeds the library.
void block_all_signals();

/// Keeps the signal from threads that start later; without it the signal ends the process. To be called before any
/// other thread starts.
void block_signal(int signal);

/// Calls the action, on a thread of its own, whenever this process gets the signal, which must be blocked.
class SignalThread {
 public:
  SignalThread(int signal, std::function<void()> action);
  ~SignalThread();
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

 private:
  void run();

  const std::function<void()> action_;
  const Socket signals_, stop_;
  std::thread thread_;
};

}  // namespace prunex::comm
