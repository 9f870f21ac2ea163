// Secrets, the proof that both ends know one, and strangers on connections that ask for it.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <memory>
#include <set>
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
#include "tests/scratch.h"
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

std::string hex(const KeyBytes& bytes) {
  std::string text;
  for (const unsigned byte : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

// RFC 4231, test cases 1 and 2.
TEST(Keys, AreMadeWithTheHmacOfTheStandard) {
  EXPECT_EQ(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

// openssl kdf -keylen 32 -kdfopt digest:SHA256 -kdfopt "key:correct horse battery staple" -kdfopt "salt:prunex link 1"
// -kdfopt hexinfo:73746f726500746f6b656e HKDF
TEST(Keys, AreThoseOfHkdf) {
  EXPECT_EQ(hex(link_key(kOurs, "store", "token").bytes),
            "b14dd9c8f8e5b42e63f1cbbbdae4716cfa8ef1078627fb84fa9bbeef1846b656");
}

TEST(Keys, DifferWithSecretPurposeAndToken) {
  std::set<std::string> keys;
  for (const Privacy& privacy : {Privacy{}, kOurs, kTheirs}) {
    for (const char* purpose : {"store", "door", "peer"}) {
      for (const char* token : {"", "1", "2"}) keys.insert(hex(link_key(privacy, purpose, token).bytes));
    }
  }
  EXPECT_EQ(keys.size(), 27U);
}

class Secrets : public testing::Test {
 protected:
  std::string write(const std::string& text, mode_t mode = 0600) {
    const std::string path = scratch_.path() + "/secret";
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }
  static std::string refusal(const std::string& path) {
    return message([&] { read_secret(path, [](const char*) -> const char* { return nullptr; }); });
  }

  const tests::Scratch scratch_;
};

TEST_F(Secrets, AreAFilesTextWithoutItsLastLineBreak) {
  const auto nothing = [](const char*) -> const char* { return nullptr; };
  EXPECT_EQ(read_secret(write("sixteen bytes, ok\n"), nothing), "sixteen bytes, ok");
  EXPECT_EQ(read_secret(write("sixteen bytes, ok\r\n", 0400), nothing), "sixteen bytes, ok");
  EXPECT_EQ(read_secret(write(" sixteen bytes, \n\n"), nothing), " sixteen bytes, \n");
  EXPECT_EQ(read_secret(write(std::string(kMostSecretBytes, 'x') + "\n"), nothing).size(), kMostSecretBytes);
}

TEST_F(Secrets, ComeFromTheVariableWhereNoFileIsNamed) {
  const auto variable = [](const char* name) -> const char* {
    return std::string(name) == "PRUNEX_SECRET" ? "of the variable, long enough" : nullptr;
  };
  EXPECT_EQ(read_secret("", variable), "of the variable, long enough");
  EXPECT_EQ(read_secret(write("of the file, long enough"), variable), "of the file, long enough");
  EXPECT_EQ(read_secret("", [](const char*) -> const char* { return nullptr; }), "");
  EXPECT_THAT(message([] { read_secret("", [](const char*) { return ""; }); }),
              HasSubstr("PRUNEX_SECRET: got an empty secret, wanted"));
}

TEST_F(Secrets, ThatOthersMayReadAreRefusedByName) {
  for (const mode_t mode : {0640, 0604, 0660, 0644, 0610}) {
    const auto text = refusal(write("sixteen bytes, ok", mode));
    EXPECT_THAT(text, HasSubstr("`secret_file`: " + scratch_.path() + "/secret: mode 0"));
    EXPECT_THAT(text, HasSubstr("lets others than its owner use it, wanted 0600 (chmod 600)"));
    EXPECT_THAT(text, Not(HasSubstr("sixteen")));
  }
}

TEST_F(Secrets, ThatAreNoneAreRefusedByNameAndNotShown) {
  EXPECT_THAT(refusal(write("")), HasSubstr("got an empty secret, wanted one such as `openssl rand -hex 32` prints"));
  EXPECT_THAT(refusal(write("\n")), HasSubstr("got an empty secret"));
  const auto text = refusal(write("short\n"));
  EXPECT_THAT(text, HasSubstr("got a secret of 5 bytes, wanted 16 to 1024, such as"));
  EXPECT_THAT(text, Not(HasSubstr("short")));
  EXPECT_THAT(refusal(write(std::string(5000, 'x'))), HasSubstr("got a secret of more than 1024 bytes"));
  EXPECT_THAT(refusal(scratch_.path() + "/nothing"), HasSubstr("/nothing: No such file or directory"));
  EXPECT_THAT(refusal(scratch_.path()), HasSubstr("it is not a regular file"));
  ASSERT_EQ(mkfifo((scratch_.path() + "/pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal(scratch_.path() + "/pipe"), HasSubstr("it is not a regular file"));
}

/// Moves messages between two ends until neither has more to say; everything that passed, the caller's words first.
std::pair<std::string, std::string> talk(Proof& caller, Proof& answerer) {
  std::string from_caller, from_answerer;
  size_t caller_read = 0, answerer_read = 0;
  for (bool moved = true; moved;) {
    from_caller += caller.take_unsent();
    from_answerer += answerer.take_unsent();
    moved = false;
    const auto move = [&](Proof& to, const std::string& words, size_t& read) {
      const size_t wants = to.wants();
      if (wants == 0 || words.size() - read < wants) return;
      to.take(std::string_view(words).substr(read, wants));
      read += wants;
      moved = true;
    };
    move(caller, from_answerer, caller_read);
    move(answerer, from_caller, answerer_read);
  }
  return {from_caller, from_answerer};
}

TEST(Proof, ConvincesBothEndsThatKnowTheKey) {
  const LinkKey key = link_key(kOurs, "peer", "7");
  Proof caller(Side::kCaller, key), answerer(Side::kAnswerer, key);
  const auto [said, answered] = talk(caller, answerer);
  EXPECT_EQ(caller.wants(), 0U);
  EXPECT_EQ(answerer.wants(), 0U);
  EXPECT_EQ(said.size(), 80U);
  EXPECT_EQ(answered.size(), 80U);
  EXPECT_EQ(said.find(kOurs.secret), std::string::npos);
}

TEST(Proof, ConvincesNobodyOfAnotherKey) {
  Proof caller(Side::kCaller, link_key(kOurs, "peer")), answerer(Side::kAnswerer, link_key(kTheirs, "peer"));
  EXPECT_THAT(message([&] { talk(caller, answerer); }), HasSubstr("it has another secret"));
  EXPECT_NE(caller.wants(), 0U);
  EXPECT_NE(answerer.wants(), 0U);
}

TEST(Proof, ThatWasHeardOnceProvesNothingAgain) {
  const LinkKey key = link_key(kOurs, "peer");
  Proof caller(Side::kCaller, key), answerer(Side::kAnswerer, key);
  const auto [said, answered] = talk(caller, answerer);
  const auto replay = [](Proof& to, const std::string& words) {
    size_t read = 0;
    while (to.wants() > 0) {
      const size_t wants = to.wants();
      to.take(std::string_view(words).substr(read, wants));
      read += wants;
    }
  };
  Proof next_answerer(Side::kAnswerer, key), next_caller(Side::kCaller, key);
  EXPECT_THAT(message([&] { replay(next_answerer, said); }), HasSubstr("it has another secret"));
  EXPECT_THAT(message([&] { replay(next_caller, answered); }), HasSubstr("it has another secret"));
}

// A stranger who calls the caller back: what one end proves is no proof of the other.
TEST(Proof, IsNotGivenToWhoSendsItBack) {
  const LinkKey key = link_key(kOurs, "peer");
  Proof first(Side::kCaller, key), second(Side::kCaller, key);
  Proof answerer(Side::kAnswerer, key);
  const std::string hello = answerer.take_unsent();
  for (Proof* caller : {&first, &second}) {
    caller->take(hello.substr(0, 16));
    caller->take(hello.substr(16));
  }
  const std::string said = first.take_unsent();
  EXPECT_THAT(message([&] { second.take(said.substr(48)); }), HasSubstr("it has another secret"));
}

TEST(Proof, EveryFlippedByteIsNoticed) {
  const LinkKey key = link_key(kOurs, "peer");
  for (size_t place = 0; place < 160; ++place) {
    Proof caller(Side::kCaller, key), answerer(Side::kAnswerer, key);
    size_t passed = 0;
    const auto carry = [&](Proof& from, Proof& to) {
      std::string words = from.take_unsent();
      for (char& byte : words) byte = static_cast<char>(byte ^ (passed++ == place ? 0x10 : 0));
      for (size_t read = 0, wants = to.wants(); read < words.size(); wants = to.wants()) {
        to.take(std::string_view(words).substr(read, wants));
        read += wants;
      }
    };
    const auto refused = message([&] {
      carry(answerer, caller);
      carry(caller, answerer);
      carry(answerer, caller);
    });
    EXPECT_THAT(refused, testing::AnyOf(HasSubstr("another program"), HasSubstr("another secret"))) << place;
  }
}

/// Two ends of a connection over loopback.
std::pair<Socket, Socket> connection() {
  const Socket listener = listen_on({"127.0.0.1", 0}, 1);
  Socket caller = connect_to({"127.0.0.1", port_of(listener)}, in(10s));
  Socket answerer = accept_from(listener);
  while (answerer.fd() < 0) answerer = accept_from(listener);
  return {std::move(caller), std::move(answerer)};
}

TEST(Link, HandsNothingOnUntilItIsProven) {
  auto [stranger, socket] = connection();
  Link link(std::move(socket), Side::kAnswerer, link_key(kOurs, "peer"));
  char byte = 0;
  EXPECT_EQ(link.send("a word", 6), -1);
  EXPECT_EQ(errno, EAGAIN);
  const std::string words = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_TRUE(send_all(stranger, words.data(), words.size(), in(10s)));
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
  EXPECT_THAT(problems[1], HasSubstr("it has another secret; gave up after 3 s"));
}

// Who writes into torchrun's store can send a rank to a store of their own, but not make it believe what is there.
TEST(PrivateRuns, BelieveNoStoreThatAStrangerPointsTo) {
  const StoreServer strangers({.ranks = 2, .key = store_key(kTheirs, "")});
  Join join(1s);
  EXPECT_THAT(message([&] {
                reach_store({"127.0.0.1", strangers.port(), store_key(kOurs, "")}, join);
              }),
              HasSubstr("it has another secret"));
}

/// Everything that a caller with the key says to who answers at the place: what an eavesdropper has heard.
std::string recorded(const Endpoint& place, const LinkKey& key) {
  const Socket socket = connect_to(place, in(10s));
  Proof caller(Side::kCaller, key);
  std::string said;
  for (const char* of_answerer : {"greeting", "nonce"}) {
    std::string words(caller.wants(), ' ');
    EXPECT_TRUE(receive_all(socket, words.data(), words.size(), in(10s))) << of_answerer;
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
      send_all(strangers.back(), text.data(), text.size(), in(10s));
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
  Door door("127.0.0.1", key, 20ms);
  door.set_formed({2, {0, 1}});
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
