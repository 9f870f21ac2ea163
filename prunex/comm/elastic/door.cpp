#include "prunex/comm/elastic/door.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <list>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "prunex/comm/meet/strangers.h"
#include "prunex/comm/watch/signals.h"

namespace prunex::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kBacklog = 128;
constexpr int kMostStrangers = 64;  // who connected and has not proved that it knows the key yet
constexpr size_t kMostCallers = 4096;
constexpr milliseconds kOutOfDescriptors{10};

}  // namespace

class Door::Loop {
 public:
  Loop(Socket listener, Endpoint endpoint, const LinkKey& key, milliseconds pause)
      : listener_(std::move(listener)),
        endpoint_(std::move(endpoint)),
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
      caller.link.send({MessageKind::kNote, goes_on ? words::kSaid + message : words::kOut});
    }
  }

  std::vector<NewNode> newcomers() const {
    const std::lock_guard lock(mutex_);
    std::vector<NewNode> nodes, complete;
    for (const Caller& caller : callers_) {
      if (!caller.newcomer) continue;
      const auto same = [&](const NewNode& node) { return node.front().key == caller.newcomer->key; };
      const auto node = std::find_if(nodes.begin(), nodes.end(), same);
      node == nodes.end() ? nodes.push_back({*caller.newcomer}) : node->push_back(*caller.newcomer);
    }
    for (NewNode& node : nodes) {
      std::sort(node.begin(), node.end(), [](const auto& a, const auto& b) { return a.local_rank < b.local_rank; });
      bool all = static_cast<int>(node.size()) == node.front().ranks;
      for (size_t i = 0; i < node.size(); ++i) all = all && node[i].local_rank == static_cast<int>(i);
      if (all) complete.push_back(std::move(node));
    }
    return complete;
  }

  bool is_waiting(const Endpoint& newcomer) const {
    const std::lock_guard lock(mutex_);
    return std::any_of(callers_.begin(), callers_.end(),
                       [&](const Caller& caller) { return caller.newcomer && caller.newcomer->door == newcomer; });
  }

  void answer(const NewNode& node, const std::string& message) {
    const std::lock_guard lock(mutex_);
    for (Caller& caller : callers_) {
      if (!caller.newcomer || caller.newcomer->key != node.front().key) continue;
      caller.link.send({MessageKind::kNote, message.empty() ? words::kOut : words::kSaid + message});
      caller.newcomer.reset();
    }
  }

  void offer(std::shared_ptr<const std::string> state) {
    const std::lock_guard lock(mutex_);
    offer_ = std::move(state);
  }

  void dismiss() {
    const std::lock_guard lock(mutex_);
    callers_.remove_if([](const Caller& caller) { return caller.report.has_value(); });
  }

  void set_formed(const Roster& roster, const Endpoint& leader) {
    const std::lock_guard lock(mutex_);
    formed_ = roster;
    leader_ = leader;
    callers_.remove_if([this](Caller& caller) { return caller.report && !is_in(caller); });
    for (Caller& caller : callers_) send_elsewhere(caller);
  }

 private:
  struct Caller {
    PeerLink link;
    std::string host;
    std::optional<Report> report = {};  // of one that seeks
    std::optional<Newcomer> newcomer = {};
    std::shared_ptr<const std::string> fetched = {};  // what it has asked for
    size_t sent = 0;                                  // of it
    Clock::time_point came = Clock::now();
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
        std::string host = address_of_peer(socket);
        callers_.push_back({PeerLink(Link(std::move(socket), Side::kAnswerer, key_)), std::move(host)});
      }
    } catch (const std::exception&) {  // no descriptor is left
      if (!drop_stranger()) std::this_thread::sleep_for(kOutOfDescriptors);
    }
  }

  static bool is_stranger(const Caller& caller) { return !caller.link.proven(); }

  /// Whether there is one.
  bool drop_stranger() {
    const auto dropped = most_crowding(callers_, is_stranger);
    if (dropped == callers_.end()) return false;
    callers_.erase(dropped);
    return true;
  }

  void give_sign(Caller& caller) {
    if (caller.link.proven() && !caller.link.blocked()) caller.link.send({MessageKind::kPing, ""});
  }

  // False when the conversation is over.
  bool listen_to(Caller& caller) {
    if (is_stranger(caller) && Clock::now() >= caller.came + kUntilProven) return false;
    const bool was_proven = caller.link.proven();
    caller.link.flush();
    hand_over(caller);
    const bool ended = !caller.link.receive().empty();
    if (!was_proven) give_sign(caller);
    while (const auto message = caller.link.next()) {
      if (!take(caller, *message)) return false;
    }
    return !ended;
  }

  bool take(Caller& caller, const PeerMessage& message) {
    if (message.kind != MessageKind::kNote) return false;
    if (message.text == words::kAsk) return true;
    if (message.text == words::kFetch) return begin_to_hand_over(caller);
    try {
      if (const auto newcomer = after(words::kJoin, message.text)) {
        caller.newcomer = Newcomer::from_text(*newcomer);
        send_elsewhere(caller);
        return true;
      }
      if (const auto asks = after(words::kIsIn, message.text)) {
        const bool out = is_out(Report::from_text(*asks));
        caller.link.send({MessageKind::kNote, out ? words::kOut : words::kIn});
        return true;
      }
      const auto report = after(words::kSeek, message.text);
      if (!report) return false;
      caller.report = Report::from_text(*report);
    } catch (const std::runtime_error&) {
      return false;
    }
    return is_in(caller);
  }

  void send_elsewhere(Caller& caller) const {
    const bool here = leader_.host.empty() || leader_ == endpoint_;
    if (!caller.newcomer || here) return;
    caller.newcomer.reset();
    caller.link.send({MessageKind::kNote, words::kElsewhere + leader_.text()});
  }

  bool begin_to_hand_over(Caller& caller) const {
    if (!offer_ || caller.fetched) return false;
    caller.fetched = offer_;
    caller.link.send({MessageKind::kNote, words::kSize + std::to_string(offer_->size())});
    hand_over(caller);
    return true;
  }

  /// As much as the kernel takes now.
  static void hand_over(Caller& caller) {
    while (caller.fetched && !caller.link.blocked() && caller.sent < caller.fetched->size()) {
      caller.link.send({MessageKind::kData, caller.fetched->substr(caller.sent, kMostMessageBytes)});
      caller.sent += kMostMessageBytes;
    }
  }

  /// Tells a caller without whom the others went on.
  bool is_in(Caller& caller) const {
    const bool out = is_out(*caller.report);
    if (out) caller.link.send({MessageKind::kNote, words::kOut});
    return !out;
  }

  bool is_out(const Report& report) const { return report.formed.epoch < formed_.epoch && !formed_.has(report.node); }

  const Socket listener_;
  const Endpoint endpoint_;
  const LinkKey key_;
  const milliseconds pause_;
  const Socket wake_;
  mutable std::mutex mutex_;
  std::list<Caller> callers_;
  Roster formed_;
  Endpoint leader_;
  std::shared_ptr<const std::string> offer_;
  bool stop_ = false;
  std::thread thread_;
};

Door::Door(const Endpoint& place, const LinkKey& key, milliseconds pause, const PortRange& ports) {
  Socket listener = listen_on(place, kBacklog, ports);
  endpoint_ = {place.host, port_of(listener)};
  loop_ = std::make_unique<Loop>(std::move(listener), endpoint_, key, pause);
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

void Door::set_formed(const Roster& roster, const Endpoint& leader) {
  loop_->set_formed(roster, leader);
}

std::vector<NewNode> Door::newcomers() const {
  return loop_->newcomers();
}

bool Door::is_waiting(const Endpoint& newcomer) const {
  return loop_->is_waiting(newcomer);
}

void Door::answer(const NewNode& node, const std::string& message) {
  loop_->answer(node, message);
}

void Door::offer(std::shared_ptr<const std::string> state) {
  loop_->offer(std::move(state));
}

}  // namespace prunex::comm
