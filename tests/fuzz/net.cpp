// What sockets and stores bring: requests to the run's store, messages of the heartbeat, cards of other ranks, calls at
// doors before and after the token.
#include <sys/socket.h>

#include <sstream>
#include <vector>

#include "prunex/comm/elastic/door.h"
#include "prunex/comm/meet/rendezvous.h"
#include "prunex/comm/meet/store.h"
#include "prunex/comm/watch/peer_link.h"
#include "tests/fuzz/harness.h"

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
  kReport = 'o'
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

/// A server of its own, until it has closed the connection.
void serve(const std::string& bytes) {
  comm::StoreServer server({.ranks = 2});
  const auto socket = comm::connect_to({"127.0.0.1", server.port()}, soon());
  const auto hello = comm::store_hello("");
  comm::send_all(socket, hello.data(), hello.size(), soon());
  comm::send_all(socket, bytes.data(), bytes.size(), soon());
  ::shutdown(socket.fd(), SHUT_WR);
  for (char byte = 0; comm::receive_all(socket, &byte, 1, soon());) {
  }
}

void hear_peer(const std::string& bytes) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) fail("no sockets");
  const comm::Socket sender(ends[0]);
  comm::PeerLink link{comm::Socket(ends[1])};
  for (size_t place = 0; place < bytes.size(); place += 4096) {
    const auto piece = bytes.substr(place, 4096);
    comm::send_all(sender, piece.data(), piece.size(), soon());
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

/// A door of its own, until it has closed the connection; it answers a friend all the while.
void call_at_door(const std::string& bytes, bool knows_token) {
  comm::Door door("127.0.0.1", "token", std::chrono::milliseconds(5));
  door.set_formed({3, {0, 1, 2}}, {});
  const auto socket = comm::connect_to(door.endpoint(), soon());
  const std::string hello = knows_token ? std::string("\x03\x05\0token", 8) : "";
  const std::string all = hello + bytes;
  comm::send_all(socket, all.data(), all.size(), soon());
  ::shutdown(socket.fd(), SHUT_WR);
  for (char byte = 0; comm::receive_all(socket, &byte, 1, soon());) {
  }
  for (const auto& report : door.reports()) read_report(report.text());
  if (comm::presence_at(door.endpoint(), "token", seconds(10)) != comm::Presence::kThere) fail("a door that is closed");
}

void receive(char receiver, const std::string& bytes) {
  switch (receiver) {
    case kRequests:
      return take_requests(bytes);
    case kServer:
      return serve(bytes);
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
    default:
      return;
  }
}

}  // namespace

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
  write_seed(directory, "report", "o" + report.text());
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
