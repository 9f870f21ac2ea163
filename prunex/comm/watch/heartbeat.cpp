#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <map>
#include <mutex>
#include <numeric>
#include <system_error>
#include <thread>
#include <vector>

#include "prunex/comm/meet/rendezvous.h"
#include "prunex/comm/watch/peer_link.h"
#include "prunex/comm/watch/signals.h"
#include "prunex/comm/watch/watch.h"

namespace prunex::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLongestPause{300};
constexpr milliseconds kFarewell{500};  // how long a leaver waits for the others to have read its goodbye

// In large runs a rank watches some others only, and pings the rest in turn: each in every eighth round.
constexpr int kSmallRun = 16;
constexpr int kTurns = 8;

struct Peer {
  PeerLink link;
  bool watched;             // pinged in every round; its silence counts
  Clock::time_point heard;  // when it last said something; in the future until it first did
  std::string said;         // the status that it was last sent

  bool silent_for(Clock::duration time, Clock::time_point now) const { return watched && now - heard >= time; }
};

Group heartbeat_group(Place place) {
  Group group = {"heartbeat", std::vector<int>(static_cast<size_t>(place.size)), place.rank};
  std::iota(group.members.begin(), group.members.end(), 0);
  return group;
}

// Powers of two apart, round the circle of ranks: however the network breaks apart, some ranks of one part watch some
// of the other, and tell those who can still be reached.
bool watches(Place place, int peer) {
  if (place.size <= kSmallRun) return true;
  const auto forward = static_cast<unsigned>((peer - place.rank + place.size) % place.size);
  return std::has_single_bit(forward) || std::has_single_bit(static_cast<unsigned>(place.size) - forward);
}

// Pings must go out while all processors are busy; where that is not permitted, priorities stay as they are.
void raise_priority() {
  constexpr int kUrgent = -10;
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kUrgent);
}

}  // namespace

class Heartbeat::Loop {
 public:
  Loop(Place place, Store& store, const HeartbeatOptions& options, HeartbeatEvents events)
      : rank_(place.rank),
        timeout_(options.timeout),
        events_(std::move(events)),
        wake_(opened(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))) {
    Join join(options.join_timeout);
    for (auto& [rank, link] :
         connect_peers(heartbeat_group(place), options.address, {store, join, options.privacy, options.ports})) {
      prefer_latency(link.fd(), options.timeout);
      peers_.emplace(rank,
                     Peer{PeerLink(std::move(link)), watches(place, rank), Clock::now() + options.join_timeout, ""});
    }
    ping();  // from its first word on a rank's silence counts
    thread_ = std::thread([this] { run(); });
  }
  ~Loop() {
    wake([this] { stop_ = true; });
    thread_.join();
  }

  void tell_all(const std::string& note) {
    wake([&] { notes_.push_back(note); });
  }

 private:
  template <class Change>
  void wake(const Change& change) {
    {
      const std::lock_guard lock(mutex_);
      change();
    }
    eventfd_write(wake_.fd(), 1);
  }

  void run() {
    block_all_signals();
    raise_priority();
    while (!stopped()) {
      const auto until = next_deadline();
      const auto ready = wait(until);
      const auto now = Clock::now();
      forgive(now - until);
      for (const int rank : ready) read(rank, now);
      judge(now);
      if (events_.round) events_.round();
      pass_on_notes();
      if (now >= next_ping_) ping();
    }
    say_goodbye();
  }

  bool stopped() {
    const std::lock_guard lock(mutex_);
    return stop_;
  }

  void ping() {
    next_ping_ = Clock::now() + std::clamp<Clock::duration>(timeout_ / 5, std::chrono::milliseconds(1), kLongestPause);
    const auto status = events_.status ? events_.status() : "";
    ++round_;
    for (auto& [rank, peer] : peers_) {
      if (!peer.watched && (rank + round_) % kTurns != 0) continue;
      if (peer.link.blocked()) continue;  // it is stopped: do not pile up pings
      peer.link.send({MessageKind::kPing, status == peer.said ? "" : status});
      peer.said = status;
    }
  }

  // When there is something to do even if nobody says anything.
  Clock::time_point next_deadline() const {
    auto deadline = next_ping_;
    for (const auto& [rank, peer] : peers_) {
      if (!dead_ && peer.watched) deadline = std::min(deadline, peer.heard + timeout_);
    }
    return deadline;
  }

  // The ranks that something has come from, or that take bytes again.
  std::vector<int> wait(Clock::time_point until) {
    std::vector<pollfd> descriptors = {{wake_.fd(), POLLIN, 0}};
    std::vector<int> ranks, ready;
    for (const auto& [rank, peer] : peers_) {
      ranks.push_back(rank);
      descriptors.push_back({peer.link.fd(), peer.link.events(), 0});
    }
    if (poll(descriptors.data(), descriptors.size(), milliseconds_until(until)) <= 0) return {};
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (descriptors[i + 1].revents != 0) ready.push_back(ranks[i]);
    }
    return ready;
  }

  // When this thread did not run, the others' silence is no evidence: the whole machine may have been busy.
  void forgive(Clock::duration late) {
    if (late <= kLongestPause / 10) return;
    for (auto& [rank, peer] : peers_) peer.heard += late;
  }

  void pass_on_notes() {
    eventfd_t ignored = 0;
    eventfd_read(wake_.fd(), &ignored);
    std::vector<std::string> notes;
    {
      const std::lock_guard lock(mutex_);
      notes.swap(notes_);
    }
    for (const auto& note : notes) send_all({MessageKind::kNote, note});
  }

  void send_all(const PeerMessage& message) {
    for (auto& [rank, peer] : peers_) peer.link.send(message);
  }

  void read(int rank, Clock::time_point now) {
    const auto peer = peers_.find(rank);
    if (peer != peers_.end() && !read(rank, peer->second, now)) peers_.erase(peer);
  }

  // False when the peer is gone.
  bool read(int rank, Peer& peer, Clock::time_point now) {
    peer.link.flush();
    const auto end = peer.link.receive();
    while (const auto message = peer.link.next()) {
      peer.heard = now;
      handle(rank, *message);
      if (message->kind == MessageKind::kGoodbye) return false;
    }
    if (!end.empty()) declare_dead(rank, end);
    return end.empty();
  }

  void handle(int rank, const PeerMessage& message) {
    switch (message.kind) {
      case MessageKind::kPing:
        if (events_.heard && !message.text.empty()) events_.heard(rank, message.text);
        break;
      case MessageKind::kGoodbye:
        if (events_.left) events_.left(rank, message.text);
        break;
      case MessageKind::kDeath:
        hear_of_death(rank, message.text);
        break;
      case MessageKind::kNote:
        if (events_.told) events_.told(rank, message.text);
        break;
      case MessageKind::kData:
        break;  // doors alone send it
    }
  }

  // "3 its process ended"
  void hear_of_death(int from, const std::string& text) {
    int rank = -1;
    if (std::from_chars(text.data(), text.data() + text.size(), rank).ec != std::errc()) return;
    const auto reason = text.substr(std::min(text.find(' '), text.size() - 1) + 1);
    if (rank == rank_) return declare_dead(from, "it gave this rank up, " + reason);
    if (peers_.count(rank) > 0) declare_dead(rank, reason);  // else it has said goodbye to this rank
  }

  void judge(Clock::time_point now) {
    std::vector<int> silent;
    for (const auto& [rank, peer] : peers_) {
      if (peer.silent_for(timeout_, now)) silent.push_back(rank);
    }
    for (const int rank : silent) {
      read(rank, now);  // what came since the wait
      const auto peer = peers_.find(rank);
      if (peer == peers_.end() || !peer->second.silent_for(timeout_, now)) continue;
      declare_dead(rank, fmt::format("{} {:g} s", kSilentFor, std::chrono::duration<double>(timeout_).count()));
    }
  }

  void declare_dead(int rank, const std::string& reason) {
    if (dead_) return;
    dead_ = true;
    send_all({MessageKind::kDeath, fmt::format("{} {}", rank, reason)});
    if (events_.died) events_.died(rank, reason);
  }

  // Closing a socket with unread data resets it, which may overtake the goodbye: read on until the others have closed,
  // but for those that have long been silent.
  void say_goodbye() {
    const auto status = events_.status ? events_.status() : "";
    for (auto& [rank, peer] : peers_) {
      peer.link.send({MessageKind::kGoodbye, status});
      peer.link.end_sending();
    }
    const auto begin = Clock::now();
    std::erase_if(peers_, [&](const auto& entry) { return entry.second.silent_for(timeout_ / 2, begin); });
    const auto deadline = begin + kFarewell;
    while (!peers_.empty() && Clock::now() < deadline) {
      for (const int rank : wait(deadline)) {
        if (!peers_.at(rank).link.receive().empty()) peers_.erase(rank);
      }
    }
  }

  const int rank_;
  const milliseconds timeout_;
  const HeartbeatEvents events_;
  const Socket wake_;
  std::map<int, Peer> peers_;  // those that are connected
  Clock::time_point next_ping_;
  int round_ = 0;
  bool dead_ = false;

  std::mutex mutex_;
  bool stop_ = false;
  std::vector<std::string> notes_;
  std::thread thread_;
};

Heartbeat::Heartbeat(Place place, Store& store, const HeartbeatOptions& options, HeartbeatEvents events)
    : loop_(std::make_unique<Loop>(place, store, options, std::move(events))) {}

Heartbeat::~Heartbeat() = default;

void Heartbeat::tell_all(const std::string& note) {
  loop_->tell_all(note);
}

}  // namespace prunex::comm
