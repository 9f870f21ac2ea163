#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <list>
#include <map>
#include <optional>
#include <thread>

#include "prunex/comm/meet/store.h"
#include "prunex/comm/meet/strangers.h"
#include "prunex/comm/watch/signals.h"

namespace prunex::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kOutOfDescriptors{100};
constexpr size_t kSpareClients = 64;
constexpr size_t kBytesPerRank = 64 << 10, kKeysPerRank = 64;

// The keys and values of a run.
class Table {
 public:
  explicit Table(int ranks) : shares_(static_cast<size_t>(ranks) + 1) {}

  StoreAnswer set(const std::string& key, const std::string& value) {
    if (values_.count(key) > 0) return StoreAnswer::kTaken;
    if (values_.size() >= shares_ * kKeysPerRank) return StoreAnswer::kFull;
    if (bytes_ + key.size() + value.size() > shares_ * kBytesPerRank) return StoreAnswer::kFull;
    bytes_ += key.size() + value.size();
    values_[key] = value;
    return StoreAnswer::kDone;
  }
  const std::string* find(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
  }

 private:
  const size_t shares_;
  std::map<std::string, std::string> values_;
  size_t bytes_ = 0;
};

// One connection. It has one request at a time: nothing more is read while it waits or has not taken its answer.
struct Client {
  Link link;
  std::string host;
  Clock::time_point came = Clock::now();
  bool ready = true;  // whether there is something to read, or room to write
  std::string received = {}, unsent = {};
  std::string wanted = {};  // the key that it waits for
  std::optional<Clock::time_point> until = {};

  short events() const {
    if (!link.proven()) return link.events();
    if (!unsent.empty()) return POLLOUT;
    return until ? 0 : POLLIN;  // the end of a connection is told even so
  }
};

}  // namespace

class StoreServer::Loop {
 public:
  explicit Loop(const StoreServerOptions& options)
      : key_(options.key),
        most_clients_(2 * static_cast<size_t>(options.ranks) + kSpareClients),
        table_(options.ranks),
        wake_(opened(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))) {
    uint16_t port = options.port;
    for (const auto& host : options.hosts) {
      listeners_.push_back(listen_on({host, port}, static_cast<int>(most_clients_), options.ports));
      port = port_of(listeners_.back());
    }
    port_ = port;
    thread_ = std::thread([this] { run(); });
  }
  ~Loop() {
    released_ = true;
    eventfd_write(wake_.fd(), 1);
    thread_.join();
  }

  uint16_t port() const { return port_; }

 private:
  void run() {
    block_all_signals();
    while (!released_) {
      wait();
      const auto now = Clock::now();
      clients_.remove_if([&](Client& client) { return !serve(client, now); });
    }
    listeners_.clear();
    for (auto& client : clients_) send_some(client);  // the last answer
    clients_.clear();
  }

  void wait() {
    std::vector<pollfd> descriptors = {{wake_.fd(), POLLIN, 0}};
    for (const auto& listener : listeners_) descriptors.push_back({listener.fd(), POLLIN, 0});
    for (const auto& client : clients_) descriptors.push_back({client.link.fd(), client.events(), 0});
    poll(descriptors.data(), descriptors.size(), milliseconds_until(next_deadline()));
    size_t i = 1 + listeners_.size();
    for (auto& client : clients_) client.ready = descriptors[i++].revents != 0;
    for (i = 0; i < listeners_.size(); ++i) {
      if (descriptors[i + 1].revents != 0) admit(listeners_[i]);
    }
  }

  Clock::time_point next_deadline() const {
    auto next = Clock::now() + kUntilProven;
    for (const auto& client : clients_) {
      if (!client.link.proven()) next = std::min(next, client.came + kUntilProven);
      if (client.until) next = std::min(next, *client.until);
    }
    return next;
  }

  // Where all places are taken, a stranger makes room.
  void admit(const Socket& listener) {
    try {
      Socket socket = accept_from(listener);
      if (socket.fd() < 0) return;
      if (clients_.size() >= most_clients_) {
        const auto stranger = most_crowding(clients_, [](const auto& client) { return !client.link.proven(); });
        if (stranger == clients_.end()) return;
        clients_.erase(stranger);
      }
      std::string host = address_of_peer(socket);
      clients_.push_back({Link(std::move(socket), Side::kAnswerer, key_), std::move(host)});
    } catch (const std::exception&) {  // no descriptor is left: others will close theirs
      std::this_thread::sleep_for(kOutOfDescriptors);
    }
  }

  // False when the client is to go.
  bool serve(Client& client, Clock::time_point now) {
    try {
      if (!client.link.proven() && !(client.ready && client.link.prove())) return now < client.came + kUntilProven;
      if (client.ready && !receive_some(client)) return false;
      if (client.until) look_again(client, now);
      StoreRequest request;
      while (client.unsent.empty() && !client.until && take_request(client.received, request)) {
        answer(client, request, now);
        if (released_) return true;  // answered once nobody can come any more
        if (!send_some(client)) return false;
      }
      const bool hasty = client.until && !client.received.empty();  // clients wait for their answers
      return !hasty && send_some(client);
    } catch (const std::exception&) {  // a stranger
      return false;
    }
  }

  void answer(Client& client, const StoreRequest& request, Clock::time_point now) {
    switch (request.head.operation) {
      case StoreOperation::kSet:
        client.unsent = encode_reply(table_.set(request.key, request.value));
        if (const auto* value = table_.find(request.key)) tell_those_who_wait_for(request.key, *value);
        break;
      case StoreOperation::kGet:
        client.wanted = request.key;
        client.until = now + milliseconds(request.head.wait_milliseconds);
        look_again(client, now);
        break;
      case StoreOperation::kRelease:
        client.unsent = encode_reply(StoreAnswer::kDone);
        released_ = true;
        break;
    }
  }

  void tell_those_who_wait_for(const std::string& key, const std::string& value) {
    for (auto& client : clients_) {
      if (!client.until || client.wanted != key) continue;
      client.until.reset();
      client.unsent = encode_reply(StoreAnswer::kDone, value);
      send_some(client);
    }
  }

  void look_again(Client& client, Clock::time_point now) const {
    const auto* value = table_.find(client.wanted);
    if (value == nullptr && now < *client.until) return;
    client.until.reset();
    client.unsent = value != nullptr ? encode_reply(StoreAnswer::kDone, *value) : encode_reply(StoreAnswer::kNothing);
  }

  // Both: false when the connection is over.
  static bool receive_some(Client& client) {
    char buffer[4096];
    const size_t most = sizeof(StoreRequestHead) + kMostKeyBytes + kMostValueBytes;
    while (client.received.size() < most) {
      const ssize_t count = client.link.receive(buffer, sizeof(buffer));
      if (count == 0) return false;
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return is_later(errno);
      client.received.append(buffer, static_cast<size_t>(count));
    }
    return true;
  }
  static bool send_some(Client& client) {
    while (!client.unsent.empty()) {
      const ssize_t sent = client.link.send(client.unsent.data(), client.unsent.size());
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0) return is_later(errno);
      client.unsent.erase(0, static_cast<size_t>(sent));
    }
    return true;
  }

  const LinkKey key_;
  const size_t most_clients_;
  Table table_;
  const Socket wake_;
  std::vector<Socket> listeners_;
  uint16_t port_ = 0;
  std::list<Client> clients_;  // in the order of their coming
  std::atomic<bool> released_ = false;
  std::thread thread_;
};

StoreServer::StoreServer(const StoreServerOptions& options) : loop_(std::make_unique<Loop>(options)) {}

StoreServer::~StoreServer() = default;

uint16_t StoreServer::port() const {
  return loop_->port();
}

}  // namespace prunex::comm
