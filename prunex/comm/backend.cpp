#include "prunex/comm/backend.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <thread>
#include <utility>

namespace prunex::comm {
namespace {

template <class T, class Op>
void combine(void* out, const void* a, const void* b, int64_t count) {
  const T* x = static_cast<const T*>(a);
  std::transform(x, x + count, static_cast<const T*>(b), static_cast<T*>(out), Op());
}

struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return std::max(a, b);
  }
};

template <class T>
ReduceFunction sum_or_max(Reduce reduce) {
  return reduce == Reduce::kMax ? combine<T, Max> : combine<T, std::plus<T>>;
}

}  // namespace

AbortSwitch::Listener AbortSwitch::listen(Action action) {
  const std::lock_guard lock(mutex_);
  if (!reason_.empty()) action(reason_);
  const int64_t key = next_key_++;
  actions_[key] = std::move(action);
  return {this, [key](AbortSwitch* owner) {
            const std::lock_guard lock(owner->mutex_);
            owner->actions_.erase(key);
          }};
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

TimedOut::TimedOut(std::chrono::milliseconds timeout, const std::vector<int>& world_ranks)
    : std::runtime_error(fmt::format("no answer within {:g} s from rank {}",
                                     std::chrono::duration<double>(timeout).count(), fmt::join(world_ranks, " or "))) {}

Backend::Backend(const Group& group, const Guard& guard)
    : Communicator(group.name, group.rank, static_cast<int>(group.members.size())),
      members_(group.members),
      guard_(guard) {}

AbortSwitch::Listener Backend::listen() {
  return guard_.abort_switch->listen([this](const std::string& reason) { abort(reason); });
}

std::vector<int> Backend::world_ranks(std::vector<int> ranks) const {
  for (int& rank : ranks) rank = members_[static_cast<size_t>(rank)];
  return ranks;
}

std::vector<int> Backend::others() const {
  std::vector<int> ranks(members_);
  ranks.erase(ranks.begin() + rank());
  return ranks;
}

void Backend::wait_until(const std::function<bool()>& done, std::chrono::milliseconds limit,
                         std::chrono::steady_clock::time_point deadline) const {
  using Clock = std::chrono::steady_clock;
  constexpr int kSpins = 2000;
  constexpr auto kBetweenCalls = std::chrono::milliseconds(100);
  auto next_call = Clock::now() + kBetweenCalls;
  for (int spins = 0; !done(); ++spins) {
    if (const auto reason = abort_reason(); !reason.empty()) throw std::runtime_error(reason);
    const auto now = Clock::now();
    if (now > deadline) throw TimedOut(limit, others());
    if (guard_.on_wait && now > next_call) {
      guard_.on_wait();
      next_call = now + kBetweenCalls;
    }
    if (spins < kSpins) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

// A broken connection says little: the peer may have died, or have ended because another one did. The switch is to know
// in a moment.
std::string Backend::describe(const char* operation, const std::exception& error) {
  const std::string text = error.what();
  if (text.starts_with("[comm]")) return text;  // of another group that this operation uses
  const bool timed_out = dynamic_cast<const TimedOut*>(&error) != nullptr;
  if (!timed_out && abort_reason().empty()) guard_.abort_switch->reason(guard_.patience);
  auto reason = abort_reason();
  if (reason.empty()) reason = timed_out ? text : explain(text);
  return fmt::format("[comm] rank {}: {} in {}: {}", members_[static_cast<size_t>(rank())], operation, name(), reason);
}

void Backend::fail(const char* operation, const std::exception& error) {
  const auto text = describe(operation, error);
  abort(text);
  throw std::runtime_error(text);
}

FlatBuffer::FlatBuffer(const at::Tensor& tensor)
    : FlatBuffer(tensor.data_ptr(), static_cast<int64_t>(tensor.element_size())) {}

int64_t ring_chunks(Range range, int64_t ranks, int64_t element_size) {
  const int64_t block = (range.size() + ranks - 1) / ranks * element_size;
  return std::max<int64_t>(1, (block + kChunkBytes - 1) / kChunkBytes);
}

Range ring_piece(Range range, int64_t ranks, int64_t chunks, int64_t block, int64_t chunk) {
  return part(part(range, ranks, (block % ranks + ranks) % ranks), chunks, chunk);
}

ReduceFunction reduce_function(c10::ScalarType type, Reduce reduce) {
  switch (type) {
    case c10::kFloat:
      return sum_or_max<float>(reduce);
    case c10::kDouble:
      return sum_or_max<double>(reduce);
    case c10::kLong:
      return sum_or_max<int64_t>(reduce);
    default:
      return sum_or_max<uint8_t>(reduce);
  }
}

}  // namespace prunex::comm
