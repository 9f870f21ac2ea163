// Ends everything that waits for other ranks, at once.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace prunex::comm {

/// Whoever waits for other ranks leaves an action here that ends its waiting. Safe to use from several threads.
class AbortSwitch {
 public:
  using Action = std::function<void(const std::string& reason)>;

  /// An action, for as long as this lives; the switch must outlive it.
  class Listener {
   public:
    Listener() = default;
    Listener(AbortSwitch& owner, int64_t key) : switch_(&owner), key_(key) {}
    ~Listener();
    Listener(Listener&& other) noexcept;
    Listener& operator=(Listener&& other) noexcept;

   private:
    AbortSwitch* switch_ = nullptr;
    int64_t key_ = 0;
  };

  /// The action is called once, from any thread, at once if the switch is on already; never after the listener's end.
  /// It must neither wait nor use the switch.
  [[nodiscard]] Listener listen(Action action);

  /// Runs all actions. Only the first call counts.
  void abort(const std::string& reason);

  /// Why it is on, having waited so long for it; else empty.
  std::string reason(std::chrono::milliseconds patience = std::chrono::milliseconds(0)) const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable on_;
  std::string reason_;
  int64_t next_key_ = 0;
  std::map<int64_t, Action> actions_;
};

}  // namespace prunex::comm
