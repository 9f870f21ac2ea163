// What sockets and stores bring: proofs, with and without encryption behind them; requests to the run's store, calls at
// doors, messages of ranks and of the heartbeat, before and after the proof; cards of other ranks.
#include <sys/socket.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "prunex/comm/elastic/door.h"
#include "prunex/comm/elastic/invitation.h"
#include "prunex/comm/meet/link.h"
#include "prunex/comm/meet/rendezvous.h"
#include "prunex/comm/meet/store.h"
#include "prunex/comm/tcp/mesh.h"
#include "prunex/comm/watch/peer_link.h"
#include "tests/fuzz/harness.h"
#include "tests/stranger.h"

namespace prunex::fuzz {
namespace {

using std::chrono::seconds;

// The first byte of an input says who receives the rest.
enum Receiver : char {
  kRequests = 'r',
  kServer = 's',
  kPeer = 'p',
  kSeats = 'c',
  kStranger = 'd',
  kCaller = 'k',
  kReport = 'o',
  kInvitation = 'i',
  kPlace = 'h',
  kStoreStranger = 'x',
  kAnswered = 'a',
  kCalled = 'b',
  kAnsweredInTls = 'A',
  kCalledInTls = 'B',
  kMessages = 'm'
};

comm::Deadline soon() {
  return std::chrono::steady_clock::now() + seconds(10);
}

/// What is taken as a request is what a client would have sent.
void take_requests(std::string bytes) {
  comm::StoreRequest request;
  for (std::string before = bytes; comm::take_request(bytes, request); before = bytes) {
    const auto sent = comm::encode(request);
    if (sent + bytes != before) fail("another request");
  }
}

const comm::Privacy kSecret = {"what the fuzzer may know"};

comm::LinkKey key_of(bool encrypts) {
  return comm::link_key({kSecret.secret, encrypts}, "fuzz");
}

std::pair<comm::Socket, comm::Socket> connection() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) fail("no sockets");
  return {comm::Socket(ends[0]), comm::Socket(ends[1])};
}

std::pair<comm::Link, comm::Link> proven() {
  auto [one, other] = connection();
  comm::Link caller(std::move(one), comm::Side::kCaller, key_of(false));
  comm::Link answerer(std::move(other), comm::Side::kAnswerer, key_of(false));
  while (!caller.prove() || !answerer.prove()) answerer.prove();
  return {std::move(caller), std::move(answerer)};
}

void end(comm::Link& link) {
  link.end_sending();
  for (char byte = 0; link.receive_all(&byte, 1, soon());) {
  }
}

void end(const comm::Socket& socket) {
  ::shutdown(socket.fd(), SHUT_WR);
  for (char byte = 0; tests::receive_all(socket, &byte, 1, soon());) {
  }
}

/// A server of its own, until it has closed the connection.
void serve(const std::string& bytes, bool is_proven) {
  comm::StoreServer server({.ranks = 2, .key = key_of(false)});
  auto socket = comm::connect_to({"127.0.0.1", server.port()}, soon());
  if (!is_proven) {
    tests::send_all(socket, bytes.data(), bytes.size(), soon());
    return end(socket);
  }
  comm::Link link(std::move(socket), comm::Side::kCaller, key_of(false));
  link.prove_until(soon());
  link.send_all(bytes.data(), bytes.size(), soon());
  end(link);
}

/// One end of a link, whose other end says the bytes and nothing else.
void hear_stranger(const std::string& bytes, comm::Side side, bool encrypts) {
  auto [stranger, socket] = connection();
  comm::Link link(std::move(socket), side, key_of(encrypts));
  char byte = 0;
  for (size_t place = 0; place < bytes.size(); place += 64) {
    ::send(stranger.fd(), bytes.data() + place, std::min<size_t>(64, bytes.size() - place), MSG_NOSIGNAL);
    if (link.receive(&byte, 1) >= 0 || link.proven()) fail("a stranger who is believed");
  }
}

/// An end of TLS, whose other end says the bytes and nothing else.
void hear_tls_stranger(const std::string& bytes, comm::Side side) {
  auto [stranger, socket] = connection();
  comm::Tls tls(socket.fd(), side, comm::KeyBytes{1});
  ::send(stranger.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  try {
    if (tls.shake_hands()) fail("a stranger who is believed");
  } catch (const comm::LinkRefused&) {
  }
}

/// Messages of a rank that keeps to no order.
void hear_messages(const std::string& bytes) {
  auto [rank, link] = proven();
  std::map<int, comm::Link> links;
  links.emplace(1, std::move(link));
  comm::Mesh mesh(0, std::move(links), std::chrono::milliseconds(1));
  rank.send_all(bytes.data(), bytes.size(), soon());
  std::string memory(32, ' ');
  for (uint64_t tag = 0; tag < 4; ++tag) {
    comm::Mesh::Buffer in(mesh, memory.data(), memory.size());
    in.receive(1, tag);
    try {
      in.wait_received();
    } catch (const std::runtime_error&) {
      return;
    }
  }
}

void hear_peer(const std::string& bytes) {
  auto [sender, receiver] = proven();
  comm::PeerLink link(std::move(receiver));
  for (size_t place = 0; place < bytes.size(); place += 4096) {
    const auto piece = bytes.substr(place, 4096);
    sender.send_all(piece.data(), piece.size(), soon());
    link.receive();
    while (const auto message = link.next()) {
      if (message->text.size() > 0xffff) fail("a text that is too long");
    }
  }
}

/// Cards of the ranks from 1 on, a line each.
void seat_ranks(const std::string& text) {
  const auto store = comm::make_memory_store();
  comm::Environment environment;
  environment.seat = {0, 0, 2};
  std::istringstream lines(text);
  for (std::string card; std::getline(lines, card) && environment.world_size < 64;) {
    store->set("seat/" + std::to_string(environment.world_size++), card);
  }
  comm::Join join(seconds(10));
  check(comm::find_layout(environment, {*store, join}));
}

void read_report(const std::string& bytes) {
  const std::string text = comm::Report::from_text(bytes).text();
  if (comm::Report::from_text(text).text() != text) fail("another report");
}

void read_invitation(const std::string& bytes) {
  const std::string text = comm::Invitation::from_text(bytes).text();
  if (comm::Invitation::from_text(text).text() != text) fail("another invitation");
}

void read_place(const std::string& bytes) {
  const auto place = comm::endpoint_in(bytes);
  if (place && comm::endpoint_in(comm::name_of(*place)) != place) fail("another place");
}

/// A door of its own, until it has closed the connection; it answers a friend all the while.
void call_at_door(const std::string& bytes, bool is_proven) {
  comm::Door door({"127.0.0.1"}, key_of(false), std::chrono::milliseconds(5));
  door.set_formed({3, {0, 1, 2}}, {});
  auto socket = comm::connect_to(door.endpoint(), soon());
  if (is_proven) {
    comm::Link link(std::move(socket), comm::Side::kCaller, key_of(false));
    link.prove_until(soon());
    link.send_all(bytes.data(), bytes.size(), soon());
    end(link);
  } else {
    tests::send_all(socket, bytes.data(), bytes.size(), soon());
    end(socket);
  }
  for (const auto& report : door.reports()) read_report(report.text());
  if (comm::presence_at(door.endpoint(), key_of(false), seconds(10)) != comm::Presence::kThere)
    fail("a door that is closed");
}

void receive(char receiver, const std::string& bytes) {
  switch (receiver) {
    case kRequests:
      return take_requests(bytes);
    case kServer:
      return serve(bytes, true);
    case kStoreStranger:
      return serve(bytes, false);
    case kAnswered:
      return hear_stranger(bytes, comm::Side::kCaller, false);
    case kCalled:
      return hear_stranger(bytes, comm::Side::kAnswerer, true);
    case kAnsweredInTls:
      return hear_tls_stranger(bytes, comm::Side::kCaller);
    case kCalledInTls:
      return hear_tls_stranger(bytes, comm::Side::kAnswerer);
    case kMessages:
      return hear_messages(bytes);
    case kPeer:
      return hear_peer(bytes);
    case kSeats:
      return seat_ranks(bytes);
    case kStranger:
      return call_at_door(bytes, false);
    case kCaller:
      return call_at_door(bytes, true);
    case kReport:
      return read_report(bytes);
    case kInvitation:
      return read_invitation(bytes);
    case kPlace:
      return read_place(bytes);
    default:
      return;
  }
}

}  // namespace

std::string first_words_of_tls() {
  auto [one, other] = connection();
  comm::Tls caller(one.fd(), comm::Side::kCaller, comm::KeyBytes{1});
  caller.shake_hands();
  std::string words(4096, ' ');
  words.resize(static_cast<size_t>(::recv(other.fd(), words.data(), words.size(), 0)));
  return words;
}

void write_seeds(const std::string& directory) {
  const auto set = comm::encode({{comm::StoreOperation::kSet}, "seat/0", "0 0 2"});
  const auto get = comm::encode({{comm::StoreOperation::kGet}, "seat/0", ""});
  const auto release = comm::encode({{comm::StoreOperation::kRelease}, "", ""});
  write_seed(directory, "requests", "r" + set + get + release);
  write_seed(directory, "server", "s" + set + get + set + release);
  write_seed(directory, "peer", std::string("p\0\x02\0ok\x01\0\0\x02\x03\0dea\x03\x04\0note", 21));
  const comm::Report report{.node = 1, .formed = {3, {0, 1, 2}}, .agreed = {{4, {0, 1}}}, .seen = 4, .entered = true};
  const std::string seek = "seek " + report.text();
  const std::string note = std::string("\x03", 1) + static_cast<char>(seek.size()) + std::string(1, '\0') + seek;
  write_seed(directory, "stranger", std::string("d\x03\x03\0ask", 7));
  write_seed(directory, "caller", "k" + note + note);
  comm::Proof answerer(comm::Side::kAnswerer, key_of(false));
  const std::string greeting = answerer.take_unsent();
  write_seed(directory, "store_stranger", "x" + greeting + greeting);
  write_seed(directory, "answered", "a" + greeting + greeting);
  write_seed(directory, "called", "b" + greeting + greeting);
  write_seed(directory, "called_in_tls", "B" + first_words_of_tls());
  write_seed(directory, "answered_in_tls", std::string("A\x16\x03\x03\0\x04\x02\0\0\0", 10));
  const std::string head = std::string("\0\0\0\0\0\0\0\0\x20\0\0\0\0\0\0\0", 16);
  write_seed(directory, "messages", "m" + head + std::string(32, 'w') + head);
  write_seed(directory, "report", "o" + report.text());
  const comm::RunDoors run{.token = "token", .port = 29500, .doors = {{"10.0.0.1", 1}, {"fe80::1", 2}}};
  write_seed(directory, "invitation", "i" + comm::Invitation{run, "nodes = 2\n"}.text());
  write_seed(directory, "place", "h[fe80::1%eth0]:29500");
  write_seed(directory, "seats", "c0 1 2\n1 0 1\n");
}

}  // namespace prunex::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace prunex;
  if (size == 0) return -1;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  fuzz::expect_clear(size, [&] { fuzz::receive(static_cast<char>(data[0]), bytes); });
  return 0;
}
