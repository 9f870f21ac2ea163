#include <fmt/format.h>
#include <poll.h>

#include <cerrno>
#include <list>
#include <sstream>
#include <stdexcept>

#include "prunex/comm/backend.h"
#include "prunex/comm/meet/rendezvous.h"
#include "prunex/comm/meet/store.h"
#include "prunex/comm/meet/strangers.h"

namespace prunex::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookForStore{250};  // between two looks whether the ranks still meet
constexpr size_t kSpareVisitors = 64;
constexpr const char* kPurpose = "peer";

// What a rank publishes: where it listens, and a number that only those know who read the store.
struct Card {
  Endpoint endpoint;
  std::string token;
};

// A connection to or from another rank: the caller says which rank it is once both have proved what they know.
struct Peer {
  Link link;
  std::string host;
  int64_t rank = -1;  // of the one that is called
  int64_t said = 0;   // by the one that called
  size_t bytes = 0;   // of it that have passed

  bool complete() const { return bytes == sizeof(said); }
};

class PeerSockets {
 public:
  PeerSockets(const Group& group, const std::string& address, const Meeting& meeting)
      : group_(group),
        meeting_(meeting),
        listener_(listen_on({address, 0}, size() + static_cast<int>(kSpareVisitors), meeting.ports)),
        token_(random_secret()),
        key_(link_key(meeting.privacy, kPurpose, token_)) {
    meeting_.store.set(card_of(group_.rank), fmt::format("{} {} {}", address, port_of(listener_), token_));
  }

  std::map<int, Link> connect() {
    for (int rank = 0; rank < group_.rank; ++rank) call(rank);
    for (;;) {
      called_.remove_if([&](Peer& peer) { return go_on(peer); });
      visitors_.remove_if([&](Peer& visitor) { return hear(visitor); });
      if (links_.size() + 1 == group_.members.size()) break;
      wait();
      admit();
    }
    meeting_.join.waits_for("");
    return std::move(links_);
  }

 private:
  int size() const { return static_cast<int>(group_.members.size()); }
  std::string card_of(int rank) const { return fmt::format("{}/{}", group_.name, rank); }
  std::string name_of(int64_t rank) const {
    return fmt::format("{}: rank {}", group_.name, group_.members[static_cast<size_t>(rank)]);
  }

  [[noreturn]] void fail(int64_t rank, const std::string& problem) const {
    throw std::runtime_error(fmt::format("[comm] {} {}", name_of(rank), problem));
  }

  void call(int rank) {
    meeting_.join.waits_for(name_of(rank) + " has not come");
    const Card card = read_card(rank);
    meeting_.join.waits_for(fmt::format("{} does not answer at {}", name_of(rank), card.endpoint.host));
    const LinkKey key = link_key(meeting_.privacy, kPurpose, card.token);
    called_.push_back({Link(reach(rank, card.endpoint), Side::kCaller, key), card.endpoint.host, rank, group_.rank});
  }

  Socket reach(int rank, const Endpoint& endpoint) const {
    try {
      return connect_to(endpoint, meeting_.join.deadline());
    } catch (const std::runtime_error& error) {
      fail(rank, "cannot be reached: " + said_by(error));
    }
  }

  Card read_card(int rank) const {
    const auto text = meeting_.store.get(card_of(rank), meeting_.join.left());
    if (!text) fail(rank, fmt::format("did not come within {}", meeting_.join.limit()));
    Card card;
    std::istringstream fields(*text);
    if (fields >> card.endpoint.host >> card.endpoint.port >> card.token) return card;
    fail(rank, "left a card that is none: wanted \"address port number\"");
  }

  void wait() {
    const int missing = first_missing();
    meeting_.join.waits_for(name_of(missing) + " has not connected");
    std::vector<pollfd> descriptors = {{listener_.fd(), POLLIN, 0}};
    for (const auto& peer : called_) {
      descriptors.push_back({peer.link.fd(), peer.link.proven() ? short{POLLOUT} : peer.link.events(), 0});
    }
    for (const auto& visitor : visitors_) descriptors.push_back({visitor.link.fd(), visitor.link.events(), 0});
    const auto next_look = std::chrono::steady_clock::now() + kLookForStore;
    const int came =
        poll(descriptors.data(), descriptors.size(), milliseconds_until(std::min(meeting_.join.deadline(), next_look)));
    if (meeting_.join.over()) fail(missing, fmt::format("did not connect within {}", meeting_.join.limit()));
    if (came == 0) look_for_store(missing);
  }

  // Whose owner gives up closes it: then nobody waits for who does not come.
  void look_for_store(int missing) const {
    try {
      meeting_.store.get(card_of(group_.rank), milliseconds(1));
    } catch (const std::runtime_error& error) {
      fail(missing, "has not connected, and the ranks meet no more: " + said_by(error));
    }
  }

  int first_missing() const {
    int missing = 0;
    while (missing == group_.rank || links_.count(missing) > 0) ++missing;
    return missing;
  }

  // Where strangers take all places, one of them goes.
  void admit() {
    try {
      for (Socket socket = accept_from(listener_); socket.fd() >= 0; socket = accept_from(listener_)) {
        if (visitors_.size() >= group_.members.size() + kSpareVisitors) drop_stranger();
        std::string host = address_of_peer(socket);
        visitors_.push_back({Link(std::move(socket), Side::kAnswerer, key_), std::move(host)});
      }
    } catch (const std::runtime_error&) {  // no descriptor is left
      if (!drop_stranger()) throw;
    }
  }

  bool drop_stranger() {
    const auto dropped = most_crowding(visitors_, [](const Peer& visitor) { return !visitor.link.proven(); });
    if (dropped == visitors_.end()) return false;
    visitors_.erase(dropped);
    return true;
  }

  // True once the rank that was called knows who called.
  bool go_on(Peer& peer) {
    try {
      if (!peer.link.prove()) return false;
    } catch (const LinkRefused& error) {
      fail(peer.rank, fmt::format("is not who answers: {}", error.what()));
    }
    while (!peer.complete()) {
      const ssize_t sent =
          peer.link.send(reinterpret_cast<char*>(&peer.said) + peer.bytes, sizeof(peer.said) - peer.bytes);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && is_later(errno)) return false;
      if (sent < 0) fail(peer.rank, "closed the connection");
      peer.bytes += static_cast<size_t>(sent);
    }
    links_[static_cast<int>(peer.rank)] = std::move(peer.link);
    return true;
  }

  // False while it has more to say; true if it has been dealt with: it is a peer, or a stranger.
  bool hear(Peer& visitor) {
    while (!visitor.complete()) {
      const size_t missing = sizeof(visitor.said) - visitor.bytes;
      const ssize_t count = visitor.link.receive(reinterpret_cast<char*>(&visitor.said) + visitor.bytes, missing);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return count == 0 || !is_later(errno);
      visitor.bytes += static_cast<size_t>(count);
    }
    const bool expected = visitor.said > group_.rank && visitor.said < size();
    if (expected) links_.try_emplace(static_cast<int>(visitor.said), std::move(visitor.link));
    return true;
  }

  const Group& group_;
  const Meeting meeting_;
  const Socket listener_;
  const std::string token_;
  const LinkKey key_;
  std::list<Peer> called_, visitors_;
  std::map<int, Link> links_;
};

}  // namespace

std::map<int, Link> connect_peers(const Group& group, const std::string& address, const Meeting& meeting) {
  if (group.members.size() == 1) return {};
  return PeerSockets(group, address, meeting).connect();
}

}  // namespace prunex::comm
