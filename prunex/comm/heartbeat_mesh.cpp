#include "prunex/comm/heartbeat_mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <sstream>
#include <stdexcept>

namespace prunex::comm {
namespace {

using Clock = std::chrono::steady_clock;

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

std::string card_key(int rank) {
  return fmt::format("heartbeat/{}", rank);
}

uint64_t random_token() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

Card read_card(int rank, Store& store, Deadline deadline, const HeartbeatOptions& options) {
  const auto text = store.get(card_key(rank), std::chrono::milliseconds(std::max(1, milliseconds_until(deadline))));
  Card card;
  std::istringstream fields(text.value_or(""));
  if (fields >> card.endpoint.host >> card.endpoint.port >> card.token) return card;
  throw std::runtime_error(fmt::format("[comm] heartbeat: rank {} did not come within {:g} s", rank,
                                       std::chrono::duration<double>(options.join_timeout).count()));
}

Socket call(int rank, const Card& card, int me, Deadline deadline) {
  Socket socket = connect_to(card.endpoint, deadline);
  const Hello hello = {card.token, me};
  if (!send_all(socket, &hello, sizeof(hello), deadline)) {
    throw std::runtime_error(fmt::format("[comm] heartbeat: rank {} closed the connection", rank));
  }
  return socket;
}

// Strangers who try ports are turned away.
bool accept_one(const Socket& listener, uint64_t token, std::map<int, Socket>& sockets, Deadline deadline) {
  Socket socket = accept_from(listener, deadline);
  if (socket.fd() < 0) return false;
  Hello hello;
  const auto soon = std::min(deadline, Clock::now() + std::chrono::seconds(5));
  if (receive_all(socket, &hello, sizeof(hello), soon) && hello.token == token) {
    sockets[static_cast<int>(hello.rank)] = std::move(socket);
  }
  return true;
}

}  // namespace

std::map<int, Socket> connect_heartbeats(Place place, Store& store, const HeartbeatOptions& options) {
  std::map<int, Socket> sockets;
  if (place.size == 1) return sockets;
  const auto deadline = Clock::now() + options.join_timeout;
  const Socket listener = listen_on(options.address, place.size);
  const uint64_t token = random_token();
  store.set(card_key(place.rank), fmt::format("{} {} {}", options.address, port_of(listener), token));
  for (int rank = 0; rank < place.rank; ++rank) {
    sockets[rank] = call(rank, read_card(rank, store, deadline, options), place.rank, deadline);
  }
  while (sockets.size() + 1 < static_cast<size_t>(place.size)) {
    if (accept_one(listener, token, sockets, deadline)) continue;
    int missing = 0;
    while (missing == place.rank || sockets.count(missing) > 0) ++missing;
    throw std::runtime_error(fmt::format("[comm] heartbeat: rank {} did not connect within {:g} s", missing,
                                         std::chrono::duration<double>(options.join_timeout).count()));
  }
  for (const auto& [rank, socket] : sockets) prefer_latency(socket, options.timeout);
  return sockets;
}

}  // namespace prunex::comm
