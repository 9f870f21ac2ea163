// A signal as a call on a thread.
#pragma once

#include <functional>
#include <thread>

#include "prunex/comm/socket.h"

namespace prunex::comm {

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
