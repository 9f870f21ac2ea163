#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <random>
#include <sstream>
#include <stdexcept>

#include "prunex/comm/backend.h"
#include "prunex/comm/meet/rendezvous.h"

namespace prunex::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kSpareVisitors = 64;

// What a rank publishes: where it listens, and a number that only those know who read the store.
struct Card {
  Endpoint endpoint;
  uint64_t token = 0;
};

// What a rank says first on a connection that it opened.
struct Hello {
  uint64_t token = 0;
  int64_t rank = 0;
};

// Who has connected, and what it has said so far.
struct Visitor {
  Socket socket;
  Hello hello = {};
  size_t bytes = 0;

  bool complete() const { return bytes == sizeof(hello); }
  // False when the connection is over.
  bool listen() {
    while (!complete()) {
      const ssize_t count = recv(socket.fd(), reinterpret_cast<char*>(&hello) + bytes, sizeof(hello) - bytes, 0);
      if (count == 0) return false;
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
      bytes += static_cast<size_t>(count);
    }
    return true;
  }
};

uint64_t random_token() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

class PeerSockets {
 public:
  PeerSockets(const Group& group, const std::string& address, Meeting meeting)
      : group_(group),
        meeting_(meeting),
        listener_(listen_on({address, 0}, size() + static_cast<int>(kSpareVisitors))),
        token_(random_token()) {
    meeting_.store.set(key(group_.rank), fmt::format("{} {} {}", address, port_of(listener_), token_));
  }

  std::map<int, Socket> connect() {
    for (int rank = 0; rank < group_.rank; ++rank) call(rank);
    while (sockets_.size() + 1 < group_.members.size()) {
      wait_for_visitors();
      admit();
      visitors_.remove_if([&](Visitor& visitor) { return !visitor.listen() || take_in(visitor); });
    }
    meeting_.join.waits_for("");
    return std::move(sockets_);
  }

 private:
  int size() const { return static_cast<int>(group_.members.size()); }
  std::string key(int rank) const { return fmt::format("{}/{}", group_.name, rank); }
  std::string name_of(int rank) const {
    return fmt::format("{}: rank {}", group_.name, group_.members[static_cast<size_t>(rank)]);
  }

  [[noreturn]] void fail(int rank, const std::string& problem) const {
    throw std::runtime_error(fmt::format("[comm] {} {}", name_of(rank), problem));
  }

  void call(int rank) {
    meeting_.join.waits_for(name_of(rank) + " has not come");
    const Card card = read_card(rank);
    meeting_.join.waits_for(fmt::format("{} does not answer at {}", name_of(rank), card.endpoint.host));
    Socket socket = reach(rank, card.endpoint);
    const Hello hello = {card.token, group_.rank};
    if (!send_all(socket, &hello, sizeof(hello), meeting_.join.deadline())) fail(rank, "closed the connection");
    sockets_[rank] = std::move(socket);
  }

  Socket reach(int rank, const Endpoint& endpoint) const {
    try {
      return connect_to(endpoint, meeting_.join.deadline());
    } catch (const std::runtime_error& error) {
      fail(rank, fmt::format("cannot be reached: {}", error.what() + sizeof("[comm]")));
    }
  }

  Card read_card(int rank) const {
    const auto text = meeting_.store.get(key(rank), meeting_.join.left());
    if (!text) fail(rank, fmt::format("did not come within {}", meeting_.join.limit()));
    Card card;
    std::istringstream fields(*text);
    if (fields >> card.endpoint.host >> card.endpoint.port >> card.token) return card;
    fail(rank, "left a card that is none: wanted \"address port number\"");
  }

  void wait_for_visitors() {
    const int missing = first_missing();
    meeting_.join.waits_for(name_of(missing) + " has not connected");
    std::vector<pollfd> descriptors = {{listener_.fd(), POLLIN, 0}};
    for (const auto& visitor : visitors_) descriptors.push_back({visitor.socket.fd(), POLLIN, 0});
    poll(descriptors.data(), descriptors.size(), milliseconds_until(meeting_.join.deadline()));
    if (meeting_.join.over()) fail(missing, fmt::format("did not connect within {}", meeting_.join.limit()));
  }

  int first_missing() const {
    int missing = 0;
    while (missing == group_.rank || sockets_.count(missing) > 0) ++missing;
    return missing;
  }

  // Where strangers take all places, the oldest of them goes.
  void admit() {
    for (Socket socket = accept_from(listener_); socket.fd() >= 0; socket = accept_from(listener_)) {
      if (visitors_.size() >= group_.members.size() + kSpareVisitors) visitors_.pop_front();
      visitors_.push_back({std::move(socket)});
    }
  }

  // False while it has more to say; true if it has been dealt with: it is a peer, or a stranger.
  bool take_in(Visitor& visitor) {
    if (!visitor.complete()) return false;
    const auto [token, rank] = visitor.hello;
    const bool expected = token == token_ && rank > group_.rank && rank < size();
    if (expected) sockets_.try_emplace(static_cast<int>(rank), std::move(visitor.socket));
    return true;
  }

  const Group& group_;
  const Meeting meeting_;
  const Socket listener_;
  const uint64_t token_;
  std::list<Visitor> visitors_;
  std::map<int, Socket> sockets_;
};

}  // namespace

std::map<int, Socket> connect_peers(const Group& group, const std::string& address, Meeting meeting) {
  if (group.members.size() == 1) return {};
  return PeerSockets(group, address, meeting).connect();
}

}  // namespace prunex::comm
