#include "prunex/comm/watch/signals.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <utility>

namespace prunex::comm {
namespace {

sigset_t only(int signal) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  return set;
}

int open_signals(int signal) {
  const sigset_t set = only(signal);
  return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

}  // namespace

void block_all_signals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

void block_signal(int signal) {
  const sigset_t set = only(signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

SignalThread::SignalThread(int signal, std::function<void()> action)
    : action_(std::move(action)), signals_(opened(open_signals(signal))), stop_(opened(eventfd(0, EFD_CLOEXEC))) {
  thread_ = std::thread([this] { run(); });
}

SignalThread::~SignalThread() {
  eventfd_write(stop_.fd(), 1);
  thread_.join();
}

void SignalThread::run() {
  pollfd descriptors[] = {{signals_.fd(), POLLIN, 0}, {stop_.fd(), POLLIN, 0}};
  for (;;) {
    poll(descriptors, 2, -1);
    if (descriptors[1].revents != 0) return;
    signalfd_siginfo info;
    if (read(signals_.fd(), &info, sizeof(info)) == sizeof(info)) action_();
  }
}

}  // namespace prunex::comm
