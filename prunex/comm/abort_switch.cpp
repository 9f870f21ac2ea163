#include "prunex/comm/abort_switch.h"

#include <utility>

namespace prunex::comm {

AbortSwitch::Listener::~Listener() {
  if (switch_ == nullptr) return;
  const std::lock_guard lock(switch_->mutex_);
  switch_->actions_.erase(key_);
}

AbortSwitch::Listener::Listener(Listener&& other) noexcept
    : switch_(std::exchange(other.switch_, nullptr)), key_(other.key_) {}

AbortSwitch::Listener& AbortSwitch::Listener::operator=(Listener&& other) noexcept {
  std::swap(switch_, other.switch_);
  std::swap(key_, other.key_);
  return *this;
}

AbortSwitch::Listener AbortSwitch::listen(Action action) {
  const std::lock_guard lock(mutex_);
  if (!reason_.empty()) action(reason_);
  actions_[next_key_] = std::move(action);
  return {*this, next_key_++};
}

void AbortSwitch::abort(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!reason_.empty()) return;
    reason_ = reason;
    for (const auto& [key, action] : actions_) action(reason);
  }
  on_.notify_all();
}

std::string AbortSwitch::reason(std::chrono::milliseconds patience) const {
  std::unique_lock lock(mutex_);
  on_.wait_for(lock, patience, [&] { return !reason_.empty(); });
  return reason_;
}

}  // namespace prunex::comm
