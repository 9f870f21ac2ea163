#include "prunex/comm/elastic/door.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <list>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "prunex/comm/watch/signals.h"

namespace prunex::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kBacklog = 128;
constexpr int kMostStrangers = 64;  // who connected and has not proved that it knows the key yet
constexpr size_t kMostCallers = 4096;
constexpr milliseconds kOutOfDescriptors{10};
constexpr const char* kSeek = "seek ";
constexpr const char* kAsk = "ask";
constexpr const char* kOut = "out";
constexpr const char* kSaid = "said ";

bool starts_with(const std::string& text, const std::string& begin) {
  return text.compare(0, begin.size(), begin) == 0;
}

}  // namespace

class Door::Loop {
 public:
  Loop(Socket listener, const LinkKey& key, milliseconds pause)
      : listener_(std::move(listener)),
        key_(key),
        pause_(pause),
        wake_(opened(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))),
        thread_([this] { run(); }) {}
  ~Loop() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    eventfd_write(wake_.fd(), 1);
    thread_.join();
  }

  std::vector<Report> reports() const {
    const std::lock_guard lock(mutex_);
    std::map<std::pair<int, int>, Report> newest;
    for (const Caller& caller : callers_) {
      if (caller.report) newest[{caller.report->node, caller.report->local_rank}] = *caller.report;
    }
    std::vector<Report> all;
    for (const auto& [rank, report] : newest) all.push_back(report);
    return all;
  }

  void tell(const Roster& roster, const std::string& message) {
    const std::lock_guard lock(mutex_);
    for (Caller& caller : callers_) {
      if (!caller.report) continue;
      const bool goes_on = roster.has(caller.report->node);
      caller.link.send({MessageKind::kNote, goes_on ? kSaid + message : kOut});
    }
  }

  void dismiss() {
    const std::lock_guard lock(mutex_);
    callers_.remove_if([](const Caller& caller) { return caller.report.has_value(); });
  }

  void set_formed(const Roster& roster) {
    const std::lock_guard lock(mutex_);
    formed_ = roster;
    callers_.remove_if([this](Caller& caller) { return caller.report && !is_in(caller); });
  }

 private:
  struct Caller {
    PeerLink link;
    std::optional<Report> report = {};  // of one that seeks
  };

  void run() {
    block_all_signals();
    auto next_sign = Clock::now() + pause_;
    for (;;) {
      std::vector<pollfd> descriptors = {{wake_.fd(), POLLIN, 0}, {listener_.fd(), POLLIN, 0}};
      {
        const std::lock_guard lock(mutex_);
        for (const Caller& caller : callers_) {
          descriptors.push_back({caller.link.fd(), caller.link.events(), 0});
        }
      }
      poll(descriptors.data(), descriptors.size(), milliseconds_until(next_sign));
      const std::lock_guard lock(mutex_);
      if (stop_) return;
      eventfd_t ignored = 0;
      eventfd_read(wake_.fd(), &ignored);
      admit();
      callers_.remove_if([this](Caller& caller) { return !listen_to(caller); });
      if (Clock::now() < next_sign) continue;
      next_sign = Clock::now() + pause_;
      for (Caller& caller : callers_) give_sign(caller);
    }
  }

  void admit() {
    try {
      for (Socket socket = accept_from(listener_); socket.fd() >= 0; socket = accept_from(listener_)) {
        if (std::count_if(callers_.begin(), callers_.end(), is_stranger) >= kMostStrangers) drop_stranger();
        if (callers_.size() >= kMostCallers) callers_.pop_front();
        callers_.push_back({PeerLink(Link(std::move(socket), Side::kAnswerer, key_))});
      }
    } catch (const std::exception&) {  // no descriptor is left
      if (!drop_stranger()) std::this_thread::sleep_for(kOutOfDescriptors);
    }
  }

  static bool is_stranger(const Caller& caller) { return !caller.link.proven(); }

  /// The one that has been silent for longest; whether there is one.
  bool drop_stranger() {
    const auto oldest = std::find_if(callers_.begin(), callers_.end(), is_stranger);
    if (oldest == callers_.end()) return false;
    callers_.erase(oldest);
    return true;
  }

  void give_sign(Caller& caller) {
    if (caller.link.proven() && !caller.link.blocked()) caller.link.send({MessageKind::kPing, ""});
  }

  // False when the conversation is over.
  bool listen_to(Caller& caller) {
    const bool was_proven = caller.link.proven();
    caller.link.flush();
    const bool ended = !caller.link.receive().empty();
    if (!was_proven) give_sign(caller);
    while (const auto message = caller.link.next()) {
      if (!take(caller, *message)) return false;
    }
    return !ended;
  }

  bool take(Caller& caller, const PeerMessage& message) {
    if (message.kind != MessageKind::kNote) return false;
    if (message.text == kAsk) return true;
    if (!starts_with(message.text, kSeek)) return false;
    try {
      caller.report = Report::from_text(message.text.substr(std::string(kSeek).size()));
    } catch (const std::runtime_error&) {
      return false;
    }
    return is_in(caller);
  }

  /// Tells a caller without whom the others went on.
  bool is_in(Caller& caller) const {
    const bool is_out = caller.report->formed.epoch < formed_.epoch && !formed_.has(caller.report->node);
    if (is_out) caller.link.send({MessageKind::kNote, kOut});
    return !is_out;
  }

  const Socket listener_;
  const LinkKey key_;
  const milliseconds pause_;
  const Socket wake_;
  mutable std::mutex mutex_;
  std::list<Caller> callers_;
  Roster formed_;
  bool stop_ = false;
  std::thread thread_;
};

Door::Door(const std::string& address, const LinkKey& key, milliseconds pause) {
  Socket listener = listen_on({address, 0}, kBacklog);
  endpoint_ = {address, port_of(listener)};
  loop_ = std::make_unique<Loop>(std::move(listener), key, pause);
}

Door::~Door() = default;

std::vector<Report> Door::reports() const {
  return loop_->reports();
}

void Door::tell(const Roster& roster, const std::string& message) {
  loop_->tell(roster, message);
}

void Door::dismiss() {
  loop_->dismiss();
}

void Door::set_formed(const Roster& roster) {
  loop_->set_formed(roster);
}

Call::Call(const Endpoint& door, const LinkKey& key, const Report* report, milliseconds patience)
    : patience_(patience) {
  try {
    Socket socket = connect_to(door, Clock::now() + patience);
    prefer_latency(socket.fd(), patience);
    link_.emplace(Link(std::move(socket), Side::kCaller, key));
  } catch (const ConnectionRefused&) {
    presence_ = Presence::kEnded;
    return;
  } catch (const std::runtime_error&) {
    presence_ = Presence::kSilent;
    return;
  }
  link_->send({MessageKind::kNote, report == nullptr ? kAsk : kSeek + report->text()});
  heard_ = Clock::now();
}

std::optional<Call::Answer> Call::hear(milliseconds wait) {
  if (!link_) return Answer{presence_};
  pollfd descriptor = {link_->fd(), link_->events(), 0};
  poll(&descriptor, 1, static_cast<int>(wait.count()));
  const bool ended = !link_->receive().empty();
  while (const auto message = link_->next()) {
    lives_ = true;
    heard_ = Clock::now();
    if (message->kind != MessageKind::kNote) continue;
    if (message->text == kOut) return Answer{Presence::kThere, "", true};
    if (starts_with(message->text, kSaid))
      return Answer{Presence::kThere, message->text.substr(std::string(kSaid).size())};
  }
  if (ended) return Answer{Presence::kEnded};
  if (Clock::now() - heard_ > patience_) return Answer{Presence::kSilent};
  return std::nullopt;
}

Presence presence_at(const Endpoint& door, const LinkKey& key, milliseconds patience) {
  constexpr int kTries = 3;  // a connection that ends may be that of a process which is about to
  for (int i = 0; i < kTries; ++i) {
    Call call(door, key, nullptr, patience);
    while (!call.lives()) {
      const auto answer = call.hear(milliseconds(20));
      if (!answer) continue;
      if (answer->presence == Presence::kSilent) return Presence::kSilent;
      break;
    }
    if (call.lives()) return Presence::kThere;
  }
  return Presence::kEnded;
}

}  // namespace prunex::comm
