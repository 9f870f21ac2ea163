// Ranks that find each other through a store.
#include "prunex/comm/meet/rendezvous.h"

#include <ATen/ATen.h>
#include <c10/util/Logging.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <array>
#include <memory>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "prunex/comm/connect.h"
#include "tests/listening.h"
#include "tests/texts.h"

namespace prunex::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::message;

// The nodes of seats written as "node/local_rank/local_size"; "-" where the launcher does not tell the node.
std::vector<int> sizes_of(const std::vector<std::string>& words) {
  std::vector<Seat> seats;
  for (const auto& word : words) {
    Seat seat = {{}, word[2] - '0', word[4] - '0'};
    if (word[0] != '-') seat.node = word[0] - '0';
    seats.push_back(seat);
  }
  return node_sizes_of(seats);
}

TEST(Seats, AddUpToNodesOfAnySize) {
  EXPECT_THAT(sizes_of({"0/0/1"}), ElementsAre(1));
  EXPECT_THAT(sizes_of({"0/0/2", "0/1/2", "1/0/2", "1/1/2"}), ElementsAre(2, 2));
  EXPECT_THAT(sizes_of({"0/0/2", "0/1/2", "1/0/1", "2/0/3", "2/1/3", "2/2/3"}), ElementsAre(2, 1, 3));
}

TEST(Seats, NeedNoNodeNumbers) {
  EXPECT_THAT(sizes_of({"-/0/2", "-/1/2", "-/0/1", "-/0/1"}), ElementsAre(2, 1, 1));
}

TEST(Seats, NameTheFirstRankThatBreaksTheOrder) {
  const auto refusal = [](const std::vector<std::string>& words) { return message([&] { sizes_of(words); }); };
  EXPECT_THAT(refusal({"0/0/2", "1/0/2", "0/1/2", "1/1/2"}),  // dealt out in turn
              HasSubstr("rank 1 is local rank 0 of 2 on node 1: wanted local rank 1 of 2 on node 0; ranks must be"));
  EXPECT_THAT(refusal({"-/0/2", "-/0/2"}), HasSubstr("rank 1 is local rank 0 of 2: wanted local rank 1 of 2"));
  EXPECT_THAT(refusal({"1/0/1", "0/0/1"}), HasSubstr("rank 0 is local rank 0 of 1 on node 1: wanted"));
  EXPECT_THAT(refusal({"0/0/2", "0/1/3"}), HasSubstr("rank 1 is local rank 1 of 3 on node 0: wanted"));
  EXPECT_THAT(refusal({"0/0/2", "0/1/2", "1/0/2"}),
              HasSubstr("rank 2 is the last one and local rank 0 of 2 on node 1: 1 are missing"));
}

TEST(Cards, NameTheRanksThatAreMissing) {
  const auto store = make_memory_store();
  store->set("roll/2", "two");
  Join join(milliseconds(100));
  EXPECT_THAT(message([&] {
                exchange_cards({*store, join}, "roll", {0, 4}, "zero");
              }),
              HasSubstr("2 of 4 ranks joined within 0.1 s: missing ranks 1, 3"));
  EXPECT_THAT(exchange_cards({*store, join}, "alone", {0, 1}, "zero"), ElementsAre("zero"));
}

TEST(Cards, ThatSayNoSeatEndTheRunWithALine) {
  for (const std::string card : {"", "GET / HTTP/1.1", "0 0", "0 0 99999999", "0 -1 1", "-9 0 1"}) {
    const auto store = make_memory_store();
    store->set("seat/1", card);
    Join join(seconds(20));
    EXPECT_THAT(message([&] {
                  find_layout({.world_size = 2}, {*store, join});
                }),
                HasSubstr("rank 1 left a card that is none: wanted"));
  }
}

/// A store as torchrun hosts it.
class TorchServer {
 public:
  TorchServer() {
    c10d::TCPStoreOptions options;
    options.port = 0;
    options.isServer = true;
    options.waitWorkers = false;
    store_ = c10::make_intrusive<c10d::TCPStore>("localhost", options);
  }
  uint16_t port() const { return store_->getPort(); }
  bool has(const std::string& key) const { return store_->check({key}); }
  void set(const std::string& key, const std::string& value) {
    store_->set(key, std::vector<uint8_t>(value.begin(), value.end()));
  }

 private:
  c10::intrusive_ptr<c10d::TCPStore> store_;
};

TEST(TorchStore, CarriesValuesBetweenClients) {
  const TorchServer server;
  Join join(seconds(20));
  const StorePlace place = {"127.0.0.1", server.port()};
  const auto first = reach_torch_store(place, "run/", join), second = reach_torch_store(place, "run/", join);
  first->set("key", std::string("a\0b", 3));
  EXPECT_EQ(second->get("key", seconds(20)), std::string("a\0b", 3));
  EXPECT_EQ(second->get("other", milliseconds(50)), std::nullopt);
}

// Both calls are under way at the same time, and the first to begin is the first to end.
TEST(TorchStore, LeavesTorchsLogAsItWas) {
  const TorchServer server;
  Join join(seconds(20));
  const StorePlace place = {"127.0.0.1", server.port()};
  const auto first = reach_torch_store(place, "run/", join), second = reach_torch_store(place, "run/", join);
  const int before = FLAGS_caffe2_log_level;
  ASSERT_NE(before, c10::GLOG_FATAL);
  std::thread begins_first([&] { first->get("nothing", milliseconds(200)); });
  std::this_thread::sleep_for(milliseconds(100));
  second->get("nothing", milliseconds(300));
  begins_first.join();
  EXPECT_EQ(FLAGS_caffe2_log_level, before);
}

TEST(TorchStore, ValuesThatNoRankWritesAreRefused) {
  TorchServer server;
  server.set("run/key", std::string(1 << 20, 'x'));
  Join join(seconds(20));
  const auto client = reach_torch_store({"127.0.0.1", server.port()}, "run/", join);
  EXPECT_THAT(message([&] { client->get("key", seconds(20)); }), HasSubstr("key has 1048576 bytes, wanted at most"));
}

TEST(TorchStore, SaysThatItsHostHasEnded) {
  auto server = std::make_unique<TorchServer>();
  Join join(seconds(20));
  const auto client = reach_torch_store({"127.0.0.1", server->port()}, "", join);
  server.reset();
  EXPECT_THAT(message([&] { client->get("key", seconds(20)); }), HasSubstr("lost the store at 127.0.0.1"));
  EXPECT_THAT(message([&] { client->set("key", "value"); }), HasSubstr("lost the store at 127.0.0.1"));
}

/// A port that nobody listens on.
uint16_t closed_port() {
  return port_of(listen_on({"127.0.0.1", 0}, 1));
}

TEST(Stores, SayWhyTheyAreNotThere) {
  const auto port = closed_port();
  const std::string wanted = "no store at 127.0.0.1:" + std::to_string(port) +
                             ": connect to 127.0.0.1:" + std::to_string(port) +
                             ": Connection refused; gave up after 0.3 s (`join_timeout`)";
  Join join(milliseconds(300)), torch_join(milliseconds(300));
  EXPECT_THAT(message([&] { reach_store({"127.0.0.1", port}, join); }), HasSubstr(wanted));
  EXPECT_THAT(message([&] { reach_torch_store({"127.0.0.1", port}, "", torch_join); }), HasSubstr(wanted));
}

TEST(Stores, AreNotWaitedForLongerThanTheTimeToJoinByWhoMeetsSilence) {
  const Socket silent = listen_on({"127.0.0.1", 0}, 8);
  const StorePlace place = {"127.0.0.1", port_of(silent)};
  Join join(milliseconds(300)), torch_join(milliseconds(300));
  EXPECT_THAT(message([&] { reach_store(place, join); }), HasSubstr("another program answers there"));
  EXPECT_THAT(message([&] { reach_torch_store(place, "", torch_join); }), HasSubstr("no store of torchrun at"));
}

TEST(Stores, ListenWhereTheMasterAddressLeads) {
  Join join(seconds(20));
  const Environment environment = {
      .world_size = 2, .seat = {0, 0, 2}, .master_address = "127.0.0.1", .master_port = closed_port()};
  const auto run = meet(environment, {}, {}, {}, join);
  EXPECT_THAT(tests::listening_addresses(getpid()), ElementsAre(tests::kLoopback));
  EXPECT_THAT(message([&] { meet(environment, {}, {}, {}, join); }),
              HasSubstr("MASTER_ADDR, MASTER_PORT: the store cannot listen on 127.0.0.1:" +
                        std::to_string(environment.master_port) + ": Address already in use; wanted a free port"));
}

// Every rank of four as a thread, with its seat.
void join_and_sum(Environment environment, const std::array<Seat, 4>& seats, const std::optional<Layout>& wanted = {},
                  const Privacy& privacy = {}) {
  std::vector<std::thread> ranks;
  for (int rank = 3; rank >= 0; --rank) {
    environment.rank = rank;
    environment.seat = seats[rank];
    ranks.emplace_back([=] {
      auto h = connect(environment, {.join_timeout = std::chrono::seconds(30), .privacy = privacy}, wanted);
      auto x = at::full({1}, h.layout.rank + 1.0f);
      h.world->all_reduce(x);
      EXPECT_EQ(x.item<float>(), 10);
      EXPECT_EQ(h.node->size(), seats[rank].local_size);
      EXPECT_EQ(h.layout.sites, wanted ? wanted->sites : 1);
      h.world->barrier();
    });
  }
  for (auto& rank : ranks) rank.join();
}

TEST(Connect, JoinsRanksThroughTheStoreThatRankZeroHosts) {
  const Environment environment = {
      .world_size = 4, .master_address = "127.0.0.1", .master_port = closed_port(), .interfaces = {"lo"}};
  join_and_sum(environment, {Seat{0, 0, 2}, Seat{0, 1, 2}, Seat{1, 0, 2}, Seat{1, 1, 2}});
}

// Such as for two networks that exchange beside each other.
TEST(Connect, TwiceInARow) {
  for (int round = 0; round < 5; ++round) {
    const Environment environment = {
        .world_size = 2, .master_address = "127.0.0.1", .master_port = closed_port(), .interfaces = {"lo"}};
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      Environment own = environment;
      own.rank = rank;
      own.seat = Seat{rank, 0, 1};
      ranks.emplace_back([own] {
        Hierarchy first = connect(own), second = connect(own);
        for (Hierarchy* h : {&first, &second}) {
          auto x = at::full({1}, own.rank + 1.0f);
          h->world->all_reduce(x);
          EXPECT_EQ(x.item<float>(), 3);
          h->world->barrier();
        }
      });
    }
    for (auto& rank : ranks) rank.join();
  }
}

TEST(Connect, JoinsRanksThroughTheStoreOfTorchrun) {
  const TorchServer server;
  const Environment environment = {
      .world_size = 4, .master_address = "127.0.0.1", .master_port = server.port(), .store_host = StoreHost::kTorchrun};
  join_and_sum(environment, {Seat{0, 0, 4}, Seat{0, 1, 4}, Seat{0, 2, 4}, Seat{0, 3, 4}});
}

// Whoever reaches torchrun's store may read and write it: it holds nothing but where rank 0 hosts another one.
TEST(Connect, WithASecretLeavesNothingInTorchrunsStoreButAnAddress) {
  const TorchServer server;
  const Environment environment = {
      .world_size = 4, .master_address = "127.0.0.1", .master_port = server.port(), .store_host = StoreHost::kTorchrun};
  join_and_sum(environment, {Seat{0, 0, 2}, Seat{0, 1, 2}, Seat{1, 0, 2}, Seat{1, 1, 2}}, {},
               {"a secret that torchrun knows nothing of"});
  EXPECT_TRUE(server.has("prunex/0/store"));
  EXPECT_FALSE(server.has("prunex/0/seat/0"));
  EXPECT_FALSE(server.has("prunex/0/heartbeat/0"));
}

TEST(Connect, ClosesTheStoreOfTheLauncherWhenAllHaveJoined) {
  const StoreServer server({.ranks = 4, .key = store_key({}, "only ours")});
  const Environment environment = {.world_size = 4,
                                   .master_address = "127.0.0.1",
                                   .master_port = server.port(),
                                   .store_host = StoreHost::kLauncher,
                                   .store_secret = "only ours"};
  join_and_sum(environment, {Seat{{}, 0, 3}, Seat{{}, 1, 3}, Seat{{}, 2, 3}, Seat{{}, 0, 1}},
               Layout{.node_sizes = {3, 1}, .sites = 2});
  EXPECT_TRUE(tests::listening_addresses(getpid()).empty());
}

TEST(Connect, RefusesALauncherThatStartedOtherNodes) {
  EXPECT_THAT(message([] { connect(Environment{}, {}, Layout::even(2, 2)); }),
              HasSubstr("`nodes`, `ranks_per_node`: got 2 nodes x 2 ranks, the launcher started 1 nodes x 1 ranks"));
}

}  // namespace
}  // namespace prunex::comm
