#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "prunex/comm/meet/rendezvous.h"
#include "prunex/comm/meet/socket.h"
#include "prunex/comm/meet/store.h"

namespace prunex::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kOneTry{5'000}, kBetweenTries{100};
constexpr milliseconds kLeastGrace{1'000}, kMostGrace{30'000};  // for an answer, beyond the time that was asked for

// Why no connection is there yet; empty and a socket if one is.
std::string call_at(const StorePlace& place, Deadline deadline, Socket& socket) {
  const auto resolution = resolve_host(place.host, deadline);
  std::string problem = resolution.problem;
  for (const auto& host : resolution.hosts) {
    try {
      socket = connect_to({host, place.port}, std::min(deadline, Clock::now() + kOneTry));
      return "";
    } catch (const std::exception& error) {
      problem = said_by(error);
    }
  }
  return problem;
}

class ServerStore final : public Store {
 public:
  /// `join_by`: until then answers may take longer.
  ServerStore(Link link, std::string name, Deadline join_by)
      : link_(std::move(link)), name_(std::move(name)), join_by_(join_by) {}

  void set(const std::string& key, const std::string& value) override {
    if (key.size() > kMostKeyBytes || value.size() > kMostValueBytes) {
      throw std::runtime_error(
          fmt::format("[comm] {}: {} bytes, wanted at most {}", key, value.size(), kMostValueBytes));
    }
    const auto [answer, ignored] = ask({{StoreOperation::kSet}, key, value}, milliseconds(0));
    if (answer == StoreAnswer::kDone) return;
    const char* problem = answer == StoreAnswer::kTaken
                              ? "is there already: do two processes have the same rank, or two runs this port?"
                              : "has no room: does another program write there?";
    throw std::runtime_error(fmt::format("[comm] the store at {}: {} {}", name_, key, problem));
  }

  std::optional<std::string> get(const std::string& key, milliseconds timeout) override {
    auto [answer, value] = ask({{StoreOperation::kGet}, key, ""}, timeout);
    if (answer != StoreAnswer::kDone) return std::nullopt;
    return std::move(value);
  }

  void release() override { ask({{StoreOperation::kRelease}, "", ""}, milliseconds(0)); }

 private:
  std::pair<StoreAnswer, std::string> ask(StoreRequest request, milliseconds wait) {
    const std::lock_guard lock(mutex_);
    request.head.wait_milliseconds = static_cast<uint32_t>(std::max<int64_t>(wait.count(), 0));
    const auto bytes = encode(request);
    const auto now = Clock::now();
    const auto deadline = now + wait + std::clamp<Clock::duration>(join_by_ - now, kLeastGrace, kMostGrace);
    StoreReplyHead head;
    if (!link_.send_all(bytes.data(), bytes.size(), deadline) || !link_.receive_all(&head, sizeof(head), deadline)) {
      lose(deadline);
    }
    if (head.value_bytes > kMostValueBytes) {
      throw std::runtime_error(fmt::format("[comm] the store at {} answers with {} bytes, wanted at most {}", name_,
                                           head.value_bytes, kMostValueBytes));
    }
    std::string value(head.value_bytes, '\0');
    if (!link_.receive_all(value.data(), value.size(), deadline)) lose(deadline);
    return {head.answer, value};
  }

  [[noreturn]] void lose(Deadline deadline) const {
    throw std::runtime_error(fmt::format("[comm] lost the store at {}: its host {}", name_,
                                         Clock::now() < deadline ? "has ended" : "does not answer"));
  }

  std::mutex mutex_;
  Link link_;
  const std::string name_;
  const Deadline join_by_;
};

// A connection as soon as there is one on which `accept` says no problem; else throws why there is none. What answered
// and was not accepted says more than that nothing answers once it has given up, too.
template <class Accept>
void try_until(const StorePlace& place, Join& join, const Accept& accept) {
  for (std::string refusal;;) {
    Socket socket;
    std::string problem = call_at(place, join.deadline(), socket);
    if (problem.empty()) {
      problem = refusal = accept(std::move(socket));
    } else if (!refusal.empty()) {
      problem = fmt::format("{}, then {}", refusal, problem);
    }
    if (problem.empty()) return join.waits_for("");
    const auto line = fmt::format("no store at {}: {}", name_of(place), problem);
    join.waits_for(line);
    if (Clock::now() + kBetweenTries >= join.deadline()) {
      throw std::runtime_error(
          fmt::format("[comm] {}; gave up after {} (`join_timeout`): did rank 0 start there?", line, join.limit()));
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
}

class MemoryStore final : public Store {
 public:
  void set(const std::string& key, const std::string& value) override {
    {
      const std::lock_guard lock(mutex_);
      values_[key] = value;
    }
    changed_.notify_all();
  }

  std::optional<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, timeout, [&] { return values_.count(key) > 0; })) return std::nullopt;
    return values_.at(key);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace

std::unique_ptr<Store> make_memory_store() {
  return std::make_unique<MemoryStore>();
}

std::string name_of(const StorePlace& place) {
  return name_of(place.host, place.port);
}

void wait_for_store(const StorePlace& place, Join& join) {
  try_until(place, join, [](const Socket&) { return std::string(); });
}

std::unique_ptr<Store> reach_store(const StorePlace& place, Join& join) {
  Link link;
  try_until(place, join, [&](Socket socket) -> std::string {
    link = Link(std::move(socket), Side::kCaller, place.key);
    try {
      link.prove_until(std::min(join.deadline(), Clock::now() + kOneTry));
      return "";
    } catch (const LinkRefused& error) {
      return error.what();
    }
  });
  return std::make_unique<ServerStore>(std::move(link), name_of(place), join.deadline());
}

}  // namespace prunex::comm
