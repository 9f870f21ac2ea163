#include "prunex/comm/join.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

#include "prunex/say.h"

namespace prunex::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kFirst{5'000}, kThen{30'000};

std::string text_of(Clock::duration time) {
  const double seconds = std::chrono::duration<double>(time).count();
  return seconds < 10 ? fmt::format("{:.2g} s", seconds) : fmt::format("{:.0f} s", seconds);
}

void keep_signals_out() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

}  // namespace

Join::Join(milliseconds limit, bool announce) : limit_(limit) {
  if (announce) thread_ = std::thread([this] { this->announce(); });
}

Join::~Join() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

milliseconds Join::left() const {
  return std::max(std::chrono::duration_cast<milliseconds>(deadline() - Clock::now()), milliseconds(1));
}

std::string Join::limit() const {
  return text_of(limit_);
}

void Join::waits_for(const std::string& what) {
  const std::lock_guard lock(mutex_);
  what_ = what;
}

void Join::announce() {
  keep_signals_out();
  auto next = begin_ + std::min(kFirst, limit_ / 4);
  std::unique_lock lock(mutex_);
  while (!changed_.wait_until(lock, next, [&] { return over_; })) {
    next += std::min(kThen, limit_ / 4);
    if (what_.empty()) continue;
    const auto line = fmt::format("prunex: {}; waiting for {}, gives up after {} (--join-timeout)\n", what_,
                                  text_of(Clock::now() - begin_), limit());
    say(line);
  }
}

}  // namespace prunex::comm
