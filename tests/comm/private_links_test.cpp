// Connections whose ends know a secret, encrypted ones, and strangers on them.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <thread>
#include <vector>

#include "prunex/comm/connect.h"
#include "prunex/comm/elastic/door.h"
#include "prunex/comm/meet/link.h"
#include "prunex/comm/meet/rendezvous.h"
#include "prunex/comm/meet/store.h"
#include "prunex/comm/meet/tls.h"
#include "prunex/comm/privacy.h"
#include "tests/stranger.h"
#include "tests/texts.h"

namespace prunex::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;
using tests::message;

const Privacy kOurs = {"correct horse battery staple"}, kTheirs = {"incorrect horse battery staple"};
const Privacy kOursEncrypted = {kOurs.secret, true};

Deadline in(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

/// Two ends of a connection over loopback.
std::pair<Socket, Socket> connection() {
  const Socket listener = listen_on({"127.0.0.1", 0}, 1);
  Socket caller = connect_to({"127.0.0.1", port_of(listener)}, in(10s));
  Socket answerer = accept_from(listener);
  while (answerer.fd() < 0) answerer = accept_from(listener);
  return {std::move(caller), std::move(answerer)};
}

// A program of one's own, too, which reads no options.
TEST(Connect, TakesTheSecretOfTheEnvironment) {
  setenv(kSecretVariable, kOurs.secret.c_str(), 1);
  EXPECT_EQ(connect(Environment()).privacy.secret, kOurs.secret);
  EXPECT_EQ(connect(Environment(), {.privacy = kTheirs}).privacy.secret, kTheirs.secret);
  unsetenv(kSecretVariable);
  EXPECT_EQ(connect(Environment()).privacy.secret, "");
  EXPECT_THAT(message([] { connect(Environment(), {.privacy = {.encrypt = true}}); }), HasSubstr("`encrypt`: got no"));
}

TEST(Link, HandsNothingOnUntilItIsProven) {
  auto [stranger, socket] = connection();
  Link link(std::move(socket), Side::kAnswerer, link_key(kOurs, "peer"));
  char byte = 0;
  EXPECT_EQ(link.send("a word", 6), -1);
  EXPECT_EQ(errno, EAGAIN);
  const std::string words = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_TRUE(tests::send_all(stranger, words.data(), words.size(), in(10s)));
  while (link.receive(&byte, 1) < 0 && errno == EAGAIN) {
  }
  EXPECT_EQ(errno, EACCES);
  EXPECT_EQ(byte, 0);
  EXPECT_THAT(message([&] { link.prove(); }), HasSubstr("another program answers there"));
}

/// Both ends go on until both are proven.
void prove(Link& caller, Link& answerer) {
  const auto deadline = in(10s);
  for (bool done = false; !done;) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    done = caller.prove();
    done = answerer.prove() && done;
  }
}

struct Ends {
  Link caller, answerer;
};

Ends linked(const Privacy& privacy) {
  auto [calling, answering] = connection();
  Ends ends = {Link(std::move(calling), Side::kCaller, link_key(privacy, "peer", "1")),
               Link(std::move(answering), Side::kAnswerer, link_key(privacy, "peer", "1"))};
  prove(ends.caller, ends.answerer);
  return ends;
}

TEST(Link, CarriesWordsBetweenTwoThatKnowTheKeyAndOnlyThose) {
  const auto problem_between = [](const Privacy& one, const Privacy& other) {
    auto [calling, answering] = connection();
    Link caller(std::move(calling), Side::kCaller, link_key(one, "peer", "1"));
    Link answerer(std::move(answering), Side::kAnswerer, link_key(other, "peer", "1"));
    return message([&] {
      prove(caller, answerer);
      std::string heard(5, ' ');
      EXPECT_TRUE(caller.send_all("hello", 5, in(10s)));
      EXPECT_TRUE(answerer.receive_all(heard.data(), heard.size(), in(10s)));
      EXPECT_EQ(heard, "hello");
      EXPECT_TRUE(answerer.send_all("there", 5, in(10s)));
      EXPECT_TRUE(caller.receive_all(heard.data(), heard.size(), in(10s)));
      EXPECT_EQ(heard, "there");
    });
  };
  for (const Privacy& same : {Privacy{}, kOurs, kOursEncrypted}) {
    EXPECT_THAT(problem_between(same, same), HasSubstr("no exception"));
  }
  EXPECT_THAT(problem_between(kOurs, kTheirs), HasSubstr("it has another secret"));
  EXPECT_THAT(problem_between({}, kTheirs), HasSubstr("it has another secret"));
  EXPECT_THAT(problem_between(kOursEncrypted, {kTheirs.secret, true}), HasSubstr("it has another secret"));
  EXPECT_THAT(problem_between(kOurs, kOursEncrypted),
              HasSubstr("it encrypts what it sends (`encrypt`), this rank does"));
  EXPECT_THAT(problem_between(kOursEncrypted, kOurs), HasSubstr("it does not encrypt what it sends (`encrypt`)"));
}

/// What arrives at the kernel of the answering end, having been sent by the caller.
std::string on_the_wire(Ends& ends, const std::string& words) {
  EXPECT_TRUE(ends.caller.send_all(words.data(), words.size(), in(10s)));
  std::string seen(words.size() + 4096, '\0');
  pollfd descriptor = {ends.answerer.fd(), POLLIN, 0};
  poll(&descriptor, 1, 10'000);
  const ssize_t count = recv(ends.answerer.fd(), seen.data(), seen.size(), MSG_PEEK);
  seen.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
  return seen;
}

TEST(Link, SendsNoPlaintextWhereItEncrypts) {
  const std::string words = "weights, weights, weights, weights";
  auto plain = linked(kOurs), encrypted = linked(kOursEncrypted);
  EXPECT_THAT(on_the_wire(plain, words), HasSubstr(words));
  const auto seen = on_the_wire(encrypted, words);
  EXPECT_THAT(seen, Not(HasSubstr("weights")));
  EXPECT_GE(seen.size(), words.size());
}

TEST(Link, NoticesWhatWasChangedOnTheWay) {
  auto ends = linked(kOursEncrypted);
  const std::string forged = std::string("\x17\x03\x03\x00\x20", 5) + std::string(32, 'x');  // a record of TLS
  ASSERT_EQ(::send(ends.caller.fd(), forged.data(), forged.size(), MSG_NOSIGNAL), static_cast<ssize_t>(forged.size()));
  char byte = 0;
  while (ends.answerer.receive(&byte, 1) < 0 && errno == EAGAIN) {
  }
  EXPECT_EQ(errno, EBADMSG);
}

TEST(Link, CarriesMuchInBothDirectionsAtOnce) {
  for (const Privacy& privacy : {kOurs, kOursEncrypted}) {
    auto ends = linked(privacy);
    std::string there(5 << 20, ' '), back(there.size(), ' ');
    for (size_t i = 0; i < there.size(); ++i) there[i] = static_cast<char>(i * 7 + i / 251);
    std::thread echo([&] {
      std::string words(there.size(), ' ');
      EXPECT_TRUE(ends.answerer.receive_all(words.data(), words.size(), in(60s)));
      EXPECT_TRUE(ends.answerer.send_all(words.data(), words.size(), in(60s)));
    });
    EXPECT_TRUE(ends.caller.send_all(there.data(), there.size(), in(60s)));
    EXPECT_TRUE(ends.caller.receive_all(back.data(), back.size(), in(60s)));
    echo.join();
    EXPECT_EQ(there, back);
  }
}

TEST(Link, SaysThatTheOtherEndHasEnded) {
  for (const Privacy& privacy : {kOurs, kOursEncrypted}) {
    auto ends = linked(privacy);
    ends.caller = Link();
    char byte = 0;
    pollfd descriptor = {ends.answerer.fd(), POLLIN, 0};
    poll(&descriptor, 1, 10'000);
    EXPECT_EQ(ends.answerer.receive(&byte, 1), 0);
    ssize_t sent = 1;  // the kernel takes some before it knows
    for (int i = 0; i < 1000 && sent >= 0; ++i) sent = ends.answerer.send(&byte, 1);
    EXPECT_EQ(sent, -1);
  }
}

/// Two ends of TLS, hands shaken, or what kept them from it.
std::string shake_hands(Tls& caller, Tls& answerer) {
  return message([&] {
    const auto deadline = in(10s);
    for (bool done = false; !done;) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      done = caller.shake_hands();
      done = answerer.shake_hands() && done;
    }
  });
}

TEST(Tls, WantsOneKeyAtBothEnds) {
  auto [calling, answering] = connection();
  KeyBytes key = {1, 2, 3}, other = {1, 2, 4};
  Tls caller(calling.fd(), Side::kCaller, key), answerer(answering.fd(), Side::kAnswerer, other);
  EXPECT_THAT(shake_hands(caller, answerer), HasSubstr("TLS cannot begin"));
}

TEST(Tls, TakesNewKeysWhileItSends) {
  auto [calling, answering] = connection();
  const KeyBytes key = {7};
  Tls caller(calling.fd(), Side::kCaller, key, 1000), answerer(answering.fd(), Side::kAnswerer, key, 1000);
  ASSERT_EQ(shake_hands(caller, answerer), "no exception");
  const std::string words(300, 'w');
  std::string heard(words.size(), ' ');
  for (int i = 0; i < 100; ++i) {
    for (auto [from, to] : {std::pair{&caller, &answerer}, std::pair{&answerer, &caller}}) {
      ASSERT_EQ(from->send(words.data(), words.size()), static_cast<ssize_t>(words.size()));
      ssize_t count = -1;
      while ((count = to->receive(heard.data(), heard.size())) < 0 && errno == EAGAIN) {
      }
      ASSERT_EQ(count, static_cast<ssize_t>(heard.size())) << i;
      EXPECT_EQ(heard, words);
    }
  }
}

// A caller that knows no key, and an answerer with a certificate of its own: neither is taken for who knows it. The
// forms of TLS before 1.3 are none.
TEST(Tls, IsNotBegunWithWhoSpeaksItWithoutTheKey) {
  auto [calling, answering] = connection();
  Tls answerer(answering.fd(), Side::kAnswerer, KeyBytes{1});
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  std::unique_ptr<SSL, void (*)(SSL*)> stranger(SSL_new(context.get()), SSL_free);
  SSL_set_fd(stranger.get(), calling.fd());
  SSL_set_connect_state(stranger.get());
  const auto problem = message([&] {
    const auto deadline = in(10s);
    while (!answerer.shake_hands()) {
      SSL_do_handshake(stranger.get());
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    }
  });
  EXPECT_THAT(problem, HasSubstr("TLS cannot begin"));
}

TEST(Link, SaysWhoKeepsSilent) {
  auto [calling, answering] = connection();
  Link caller(std::move(calling), Side::kCaller, LinkKey{});
  EXPECT_THAT(message([&] { caller.prove_until(in(100ms)); }), HasSubstr("another program answers there"));
}

/// Whoever lies between the two may hand on the proof, and no more.
TEST(Link, SaysWhoKeepsSilentBehindTheProof) {
  auto [calling, answering] = connection();
  const LinkKey key = link_key(kOursEncrypted, "peer");
  Link caller(std::move(calling), Side::kCaller, key);
  Proof answerer(Side::kAnswerer, key);
  const auto hand_on = [&, &answering = answering] {
    const std::string words = answerer.take_unsent();
    return tests::send_all(answering, words.data(), words.size(), in(10s));
  };
  while (answerer.wants() > 0) {
    ASSERT_TRUE(hand_on());
    caller.prove();
    std::string heard(answerer.wants(), ' ');
    const ssize_t there = recv(answering.fd(), heard.data(), heard.size(), MSG_DONTWAIT | MSG_PEEK);
    if (there < static_cast<ssize_t>(heard.size())) continue;
    recv(answering.fd(), heard.data(), heard.size(), 0);
    answerer.take(heard);
  }
  ASSERT_TRUE(hand_on());
  EXPECT_THAT(message([&] { caller.prove_until(in(1s)); }), HasSubstr("does not begin to encrypt"));
}

ConnectOptions options_of(const Privacy& privacy) {
  return {.join_timeout = 3s, .privacy = privacy, .heartbeat_timeout = 5s};
}

TEST(PrivateRuns, AddUpInAllTheirGroups) {
  for (const Privacy& privacy : {kOurs, kOursEncrypted}) {
    const auto add_up = [](Hierarchy& ranks) {
      for (auto* group : {&ranks.world, &ranks.node, &ranks.rail}) {
        at::Tensor sum = at::ones({3'000'001});
        (*group)->all_reduce(sum);
        EXPECT_TRUE(at::equal(sum, at::full_like(sum, (*group)->size())));
      }
      ranks.world->barrier();
    };
    auto options = options_of(privacy);
    options.join_timeout = 30s;
    run_ranks(2, 2, add_up, options);
    options.shared_memory = false;
    run_ranks(2, 2, add_up, options);
  }
}

/// A process of a run of two, whose other one has another secret, finds no store of its own.
TEST(PrivateRuns, TakeNobodyInWhoHasAnotherSecret) {
  const uint16_t port = port_of(listen_on({"127.0.0.1", 0}, 1));
  Environment environment = {.world_size = 2, .seat = {0, 0, 2}, .master_address = "127.0.0.1", .master_port = port};
  std::array<std::string, 2> problems;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    environment.rank = environment.seat.local_rank = rank;
    ranks.emplace_back([&, rank, environment] {
      problems[static_cast<size_t>(rank)] =
          message([&] { connect(environment, options_of(rank == 0 ? kOurs : kTheirs)); });
    });
  }
  for (auto& rank : ranks) rank.join();
  EXPECT_THAT(problems[0], HasSubstr("1 of 2 ranks joined within 3 s: missing rank 1"));
  // of its last try it may hear the greeting alone, or find the store closed
  EXPECT_THAT(problems[1], HasSubstr("no store at 127.0.0.1:" + std::to_string(port)));
  EXPECT_THAT(problems[1], HasSubstr("; gave up after 3 s"));
}

// Who writes into torchrun's store can send a rank to a store of their own, but not make it believe what is there.
TEST(PrivateRuns, BelieveNoStoreThatAStrangerPointsTo) {
  const StoreServer strangers({.ranks = 2, .key = store_key(kTheirs, "")});
  std::string refusal;
  for (int i = 0; i < 10 && refusal.find("secret") == std::string::npos; ++i) {  // else its time was over before
    Join join(300ms);
    refusal = message([&] { reach_store({"127.0.0.1", strangers.port(), store_key(kOurs, "")}, join); });
  }
  EXPECT_THAT(refusal, HasSubstr("it has another secret"));
}

/// Everything that a caller with the key says to who answers at the place: what an eavesdropper has heard.
std::string recorded(const Endpoint& place, const LinkKey& key) {
  const Socket socket = connect_to(place, in(10s));
  Proof caller(Side::kCaller, key);
  std::string said;
  for (const char* of_answerer : {"greeting", "nonce"}) {
    std::string words(caller.wants(), ' ');
    EXPECT_TRUE(tests::receive_all(socket, words.data(), words.size(), in(10s))) << of_answerer;
    caller.take(words);
    said += caller.take_unsent();
  }
  return said;
}

/// Strangers of every kind, more than there are places for, who stay.
std::vector<Socket> strangers_at(const Endpoint& place, const LinkKey& key) {
  const std::string greeting = recorded(place, key).substr(0, 16);
  const std::vector<std::string> words = {"",
                                          "p",
                                          "GET / HTTP/1.1\r\n\r\n",
                                          greeting,
                                          greeting + std::string(31, '\0'),
                                          greeting + std::string(64, '\xff'),
                                          greeting + std::string(100'000, '\xff'),
                                          std::string(100'000, '\xff'),
                                          recorded(place, key)};
  std::vector<Socket> strangers;
  for (int i = 0; i < 20; ++i) {
    for (const auto& text : words) {
      strangers.push_back(connect_to(place, in(10s)));
      tests::send_all(strangers.back(), text.data(), text.size(), in(10s));
    }
  }
  return strangers;
}

class Strangers : public testing::TestWithParam<Privacy> {};

TEST_P(Strangers, CostAStoreNothing) {
  const LinkKey key = store_key(GetParam(), "token");
  const StoreServer server({.ranks = 2, .key = key});
  const auto strangers = strangers_at({"127.0.0.1", server.port()}, key);
  Join join(20s);
  const auto one = reach_store({"127.0.0.1", server.port(), key}, join);
  const auto other = reach_store({"127.0.0.1", server.port(), key}, join);
  one->set("key", "value");
  EXPECT_EQ(other->get("key", 20s), "value");
  EXPECT_EQ(other->get("other", 20ms), std::nullopt);
}

TEST_P(Strangers, CostADoorNothing) {
  const LinkKey key = link_key(GetParam(), "door", "token");
  Door door({"127.0.0.1"}, key, 20ms);
  door.set_formed({2, {0, 1}}, {});
  const auto strangers = strangers_at(door.endpoint(), key);
  EXPECT_EQ(presence_at(door.endpoint(), key, 5s), Presence::kThere);
  EXPECT_TRUE(door.reports().empty());
}

TEST_P(Strangers, CostRanksThatConnectNothing) {
  const auto store = make_memory_store();
  const Privacy& privacy = GetParam();
  const auto connect = [&](int rank) {
    Join join(20s);
    auto links = connect_peers({"group", {0, 1}, rank}, "127.0.0.1", {*store, join, privacy});
    const char mine = static_cast<char>('0' + rank);
    char theirs = 0;
    EXPECT_TRUE(links.at(1 - rank).send_all(&mine, 1, in(20s)));
    EXPECT_TRUE(links.at(1 - rank).receive_all(&theirs, 1, in(20s)));
    EXPECT_EQ(theirs, '1' - rank);
  };
  std::thread first([&] { connect(0); });
  Endpoint place;
  std::string token;
  std::istringstream(*store->get("group/0", 20s)) >> place.host >> place.port >> token;
  const auto strangers = strangers_at(place, link_key(privacy, "peer", token));
  connect(1);
  first.join();
}

INSTANTIATE_TEST_SUITE_P(Privacy, Strangers, testing::Values(Privacy{}, kOurs, kOursEncrypted));

}  // namespace
}  // namespace prunex::comm
