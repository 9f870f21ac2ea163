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
constexpr size_t kMostStrangers = 64;  // who connected and has not said the token yet
constexpr size_t kMostCallers = 4096;
constexpr const char* kSeek = "seek ";
constexpr const char* kAsk = "ask";
constexpr const char* kOut = "out";
constexpr const char* kSaid = "said ";

/// Takes all the time that words of different length would: says nothing of the token to who measures.
bool same_token(const std::string& a, const std::string& b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace

class Door::Loop {
 public:
  Loop(Socket listener, std::string token, milliseconds pause)
      : listener_(std::move(listener)),
        token_(std::move(token)),
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
    bool known = false;                 // has said the token
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
          const short events = caller.link.blocked() ? POLLIN | POLLOUT : POLLIN;
          descriptors.push_back({caller.link.fd(), events, 0});
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
    for (Socket socket = accept_from(listener_); socket.fd() >= 0; socket = accept_from(listener_)) {
      const auto strangers = std::count_if(callers_.begin(), callers_.end(), [](const Caller& c) { return !c.known; });
      if (static_cast<size_t>(strangers) >= kMostStrangers) {
        callers_.erase(std::find_if(callers_.begin(), callers_.end(), [](const Caller& c) { return !c.known; }));
      }
      if (callers_.size() >= kMostCallers) callers_.pop_front();
      callers_.push_back({PeerLink(std::move(socket))});
    }
  }

  void give_sign(Caller& caller) {
    if (caller.known && !caller.link.blocked()) caller.link.send({MessageKind::kPing, ""});
  }

  // False when the conversation is over.
  bool listen_to(Caller& caller) {
    caller.link.flush();
    const bool ended = !caller.link.receive().empty();
    while (const auto message = caller.link.next()) {
      if (!take(caller, *message)) return false;
    }
    return !ended;
  }

  bool take(Caller& caller, const PeerMessage& message) {
    if (message.kind != MessageKind::kNote) return false;
    if (!caller.known) {
      caller.known = same_token(message.text, token_);
      if (caller.known) give_sign(caller);
      return caller.known;
    }
    if (message.text == kAsk) return true;
    if (!message.text.starts_with(kSeek)) return false;
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
  const std::string token_;
  const milliseconds pause_;
  const Socket wake_;
  mutable std::mutex mutex_;
  std::list<Caller> callers_;
  Roster formed_;
  bool stop_ = false;
  std::thread thread_;
};

Door::Door(const std::string& address, std::string token, milliseconds pause) {
  Socket listener = listen_on({address, 0}, kBacklog);
  endpoint_ = {address, port_of(listener)};
  loop_ = std::make_unique<Loop>(std::move(listener), std::move(token), pause);
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

Call::Call(const Endpoint& door, const std::string& token, const Report* report, milliseconds patience)
    : patience_(patience) {
  try {
    Socket socket = connect_to(door, Clock::now() + patience);
    prefer_latency(socket, patience);
    link_.emplace(std::move(socket));
  } catch (const ConnectionRefused&) {
    presence_ = Presence::kEnded;
    return;
  } catch (const std::runtime_error&) {
    presence_ = Presence::kSilent;
    return;
  }
  link_->send({MessageKind::kNote, token});
  link_->send({MessageKind::kNote, report == nullptr ? kAsk : kSeek + report->text()});
  heard_ = Clock::now();
}

std::optional<Call::Answer> Call::hear(milliseconds wait) {
  if (!link_) return Answer{presence_};
  pollfd descriptor = {link_->fd(), POLLIN, 0};
  poll(&descriptor, 1, static_cast<int>(wait.count()));
  const bool ended = !link_->receive().empty();
  while (const auto message = link_->next()) {
    lives_ = true;
    heard_ = Clock::now();
    if (message->kind != MessageKind::kNote) continue;
    if (message->text == kOut) return Answer{Presence::kThere, "", true};
    if (!message->text.starts_with(kSaid)) continue;
    return Answer{Presence::kThere, message->text.substr(std::string(kSaid).size())};
  }
  if (ended) return Answer{Presence::kEnded};
  if (Clock::now() - heard_ > patience_) return Answer{Presence::kSilent};
  return std::nullopt;
}

Presence presence_at(const Endpoint& door, const std::string& token, milliseconds patience) {
  constexpr int kTries = 3;  // a connection that ends may be that of a process which is about to
  for (int i = 0; i < kTries; ++i) {
    Call call(door, token, nullptr, patience);
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
