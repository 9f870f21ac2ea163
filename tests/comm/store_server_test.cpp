// The store of a run, and strangers who find its port.
#include "prunex/comm/meet/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <thread>
#include <vector>

#include "prunex/comm/meet/store.h"
#include "tests/listening.h"
#include "tests/stranger.h"
#include "tests/texts.h"

namespace prunex::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::message;

Deadline soon() {
  return std::chrono::steady_clock::now() + 20s;
}

std::unique_ptr<Store> client_of(const StoreServer& server, const LinkKey& key = {}) {
  Join join(20s);
  return reach_store({"127.0.0.1", server.port(), key}, join);
}

/// Connects and says this; no more.
Socket stranger(const StoreServer& server, const std::string& words = "") {
  Socket socket = connect_to({"127.0.0.1", server.port()}, soon());
  EXPECT_TRUE(tests::send_all(socket, words.data(), words.size(), soon()));
  return socket;
}

/// The same after it has proved that it knows the key.
Link member(const StoreServer& server, const std::string& words, const LinkKey& key = {}) {
  Link link(stranger(server), Side::kCaller, key);
  link.prove_until(soon());
  EXPECT_TRUE(link.send_all(words.data(), words.size(), soon()));
  return link;
}

/// Whether the server ends the connection, whatever it says before.
bool is_turned_away(const Socket& socket) {
  char byte = 0;
  while (tests::receive_all(socket, &byte, 1, soon())) {
  }
  return recv(socket.fd(), &byte, 1, MSG_DONTWAIT) >= 0 || errno != EAGAIN;
}

bool is_turned_away(Link link) {
  char byte = 0;
  while (link.receive_all(&byte, 1, soon())) {
  }
  return link.receive(&byte, 1) >= 0 || errno != EAGAIN;
}

std::string bytes_of(StoreRequestHead head) {
  return {reinterpret_cast<const char*>(&head), sizeof(head)};
}

void expect_serves(const StoreServer& server) {
  const auto first = client_of(server), second = client_of(server);
  std::thread waiting([&] { EXPECT_EQ(second->get("late", 20s), std::string("a\0b", 3)); });
  first->set("late", std::string("a\0b", 3));
  waiting.join();
  EXPECT_EQ(first->get("never", 20ms), std::nullopt);
}

TEST(StoreServer, CarriesValuesBetweenClients) {
  const StoreServer server({});
  expect_serves(server);
}

TEST(StoreServer, ListensOnTheAddressesItIsGivenAndNoOthers) {
  const StoreServer server({});
  EXPECT_THAT(tests::listening_addresses(getpid()), ElementsAre(tests::kLoopback));
}

TEST(StoreServer, WritesAKeyOnce) {
  const StoreServer server({});
  const auto client = client_of(server);
  client->set("seat/1", "true");
  EXPECT_THAT(message([&] { client_of(server)->set("seat/1", "forged"); }),
              HasSubstr("seat/1 is there already: do two processes have the same rank"));
  EXPECT_EQ(client->get("seat/1", 20s), "true");
}

TEST(StoreServer, TurnsAwayWhatIsNoRequest) {
  const StoreServer server({});
  EXPECT_TRUE(is_turned_away(stranger(server, "GET / HTTP/1.1\r\nHost: prunex\r\nAccept: everything\r\n\r\n")));
  EXPECT_TRUE(is_turned_away(member(server, bytes_of({.operation = static_cast<StoreOperation>(7)}))));
  EXPECT_TRUE(is_turned_away(member(server, bytes_of({.key_bytes = 0xffffffff}))));
  EXPECT_TRUE(is_turned_away(
      member(server, bytes_of({.operation = StoreOperation::kSet, .value_bytes = kMostValueBytes + 1}))));
  expect_serves(server);
}

TEST(StoreServer, TurnsAwayWhoTalksWithoutWaitingForAnswers) {
  const StoreServer server({});
  const StoreRequestHead patient = {.wait_milliseconds = 0xffffffff};
  EXPECT_TRUE(is_turned_away(member(server, bytes_of(patient) + std::string(100'000, 'x'))));
}

TEST(StoreServer, IsNotHeldUpByStrangersWhoAreSilent) {
  const StoreServer server({.ranks = 2});
  std::vector<Socket> silent;
  for (int i = 0; i < 150; ++i) silent.push_back(stranger(server, i % 2 == 0 ? "" : "prunex"));
  expect_serves(server);
}

TEST(StoreServer, HoldsNoMoreThanItsRanksNeed) {
  const StoreServer server({.ranks = 3});
  const auto client = client_of(server);
  const std::string large(kMostValueBytes, 'x');
  size_t held = 0;
  const auto refusal = message([&] {
    for (; held < 1000; ++held) client->set("key " + std::to_string(held), large);
  });
  EXPECT_THAT(refusal, HasSubstr("has no room"));
  EXPECT_LE(held * large.size(), 4 * (64 << 10));
  EXPECT_GE(held * large.size(), 3 * (64 << 10));
  EXPECT_THAT(message([&] { client->set("larger", large + "x"); }), HasSubstr("16385 bytes, wanted at most 16384"));
  size_t keys = 0;
  const StoreServer other({.ranks = 3});
  const auto writer = client_of(other);
  EXPECT_THAT(message([&] {
                for (; keys < 1000; ++keys) writer->set("key " + std::to_string(keys), "");
              }),
              HasSubstr("has no room"));
  EXPECT_EQ(keys, 4 * 64);
}

/// What a client with this key is told. Of one whose last try is cut short the greeting is all that it heard: again.
std::string refusal_of(const StoreServer& server, const LinkKey& key) {
  std::string refusal;
  for (int i = 0; i < 10 && refusal.find("secret") == std::string::npos; ++i) {
    Join join(300ms);
    refusal = message([&] { reach_store({"127.0.0.1", server.port(), key}, join); });
  }
  return refusal;
}

TEST(StoreServer, WantsItsSecret) {
  const LinkKey key = store_key({"open sesame, said the thief"}, "token");
  const StoreServer server({.key = key});
  for (const LinkKey& other : {LinkKey{}, store_key({"open barley, said the thief"}, "token"),
                               store_key({"open sesame, said the thief"}, "other"), store_key({}, "token")}) {
    EXPECT_THAT(refusal_of(server, other), HasSubstr("it has another secret; gave up after 0.3 s"));
  }
  client_of(server, key)->set("key", "value");
}

TEST(StoreServer, IsRememberedForItsSecretOnceItHasEnded) {
  Socket listener = listen_on({"127.0.0.1", 0}, 1);
  const StorePlace place{"127.0.0.1", port_of(listener), store_key({"open barley, said the thief"}, "")};
  std::thread host([&listener] {  // for one caller
    Socket socket(-1);
    while (socket.fd() < 0) socket = accept_from(listener);
    listener.close();
    Link link(std::move(socket), Side::kAnswerer, store_key({"open sesame, said the thief"}, ""));
    EXPECT_THROW(link.prove_until(soon()), LinkRefused);
  });
  Join join(2s);
  EXPECT_THAT(message([&] { reach_store(place, join); }),
              AllOf(HasSubstr("it has another secret, then "), HasSubstr("Connection refused; gave up after 2 s")));
  host.join();
}

TEST(StoreServer, ClosesWhenItIsReleased) {
  const StoreServer server({});
  const auto client = client_of(server), other = client_of(server);
  client->release();
  EXPECT_THAT(message([&] { other->get("key", 20s); }), HasSubstr("lost the store at 127.0.0.1"));
  EXPECT_THAT(message([&] { connect_to({"127.0.0.1", server.port()}, soon()); }), HasSubstr("Connection refused"));
  EXPECT_TRUE(tests::listening_addresses(getpid()).empty());
}

TEST(StoreServer, ThatDoesNotAnswerIsGivenUpSoonAfterTheTimeToJoin) {
  const Socket listener = listen_on({"127.0.0.1", 0}, 1);
  std::thread host([&] {
    Socket socket(-1);
    while (socket.fd() < 0) socket = accept_from(listener);
    Link link(std::move(socket), Side::kAnswerer, {});
    link.prove_until(std::chrono::steady_clock::now() + 20s);
    char byte = 0;
    while (link.receive_all(&byte, 1, std::chrono::steady_clock::now() + 20s)) {
    }
  });
  Join join(2s);
  auto client = reach_store({"127.0.0.1", port_of(listener), {}}, join);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(message([&] { client->get("key", 100ms); }), HasSubstr("its host does not answer"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  client.reset();
  host.join();
}

}  // namespace
}  // namespace prunex::comm
