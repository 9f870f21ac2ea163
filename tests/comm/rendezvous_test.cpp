// Ranks that find each other through a store.
#include "prunex/comm/rendezvous.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "prunex/comm/gloo/connect.h"
#include "tests/texts.h"

namespace prunex::comm {
namespace {

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
  EXPECT_THAT(message([&] {
                exchange_cards(*store, "roll", {0, 4}, "zero", std::chrono::milliseconds(100));
              }),
              HasSubstr("2 of 4 ranks joined within 0.1 s: missing ranks 1, 3"));
  EXPECT_THAT(exchange_cards(*store, "roll", {0, 1}, "zero", std::chrono::seconds(9)), ElementsAre("zero"));
}

TEST(TcpStore, CarriesValuesBetweenClients) {
  const auto server = host_tcp_store(0, "run/");
  const auto client = reach_tcp_store("127.0.0.1", server.port, "run/", std::chrono::seconds(20));
  server.store->set("key", std::string("a\0b", 3));
  EXPECT_EQ(client->get("key", std::chrono::seconds(20)), std::string("a\0b", 3));
  EXPECT_EQ(client->get("other", std::chrono::milliseconds(50)), std::nullopt);
  client->set("other", "");
  EXPECT_EQ(server.store->get("other", std::chrono::seconds(20)), "");
}

TEST(TcpStore, SaysWhereNobodyAnswers) {
  uint16_t closed = host_tcp_store(0).port;
  EXPECT_THAT(message([&] { reach_tcp_store("127.0.0.1", closed, "", std::chrono::milliseconds(300)); }),
              HasSubstr("no store at 127.0.0.1:" + std::to_string(closed) + " within 0.3 s"));
}

TEST(TcpStore, SaysThatItsPortIsTaken) {
  const auto server = host_tcp_store(0);
  EXPECT_THAT(message([&] { host_tcp_store(server.port); }), HasSubstr("port taken?"));
}

TEST(TcpStore, SaysThatItsHostHasEnded) {
  auto server = host_tcp_store(0);
  const auto client = reach_tcp_store("127.0.0.1", server.port, "", std::chrono::seconds(20));
  server.store.reset();
  EXPECT_THAT(message([&] { client->get("key", std::chrono::seconds(20)); }), HasSubstr("lost the store at 127.0.0.1"));
}

// Every rank of four as a thread, with its seat.
void join_and_sum(Environment environment, const std::array<Seat, 4>& seats, const std::optional<Layout>& wanted = {}) {
  std::vector<std::thread> ranks;
  for (int rank = 3; rank >= 0; --rank) {
    environment.rank = rank;
    environment.seat = seats[rank];
    ranks.emplace_back([=] {
      auto h = connect(environment, {.join_timeout = std::chrono::seconds(30)}, wanted);
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
  const auto port = host_tcp_store(0).port;  // free again
  const Environment environment = {
      .world_size = 4, .master_address = "127.0.0.1", .master_port = port, .interfaces = {"lo"}};
  join_and_sum(environment, {Seat{0, 0, 2}, Seat{0, 1, 2}, Seat{1, 0, 2}, Seat{1, 1, 2}});
}

TEST(Connect, JoinsRanksThroughTheStoreOfTheLauncher) {
  const auto server = host_tcp_store(0);
  const Environment environment = {
      .world_size = 4, .master_address = "127.0.0.1", .master_port = server.port, .store_hosted = true};
  join_and_sum(environment, {Seat{0, 0, 4}, Seat{0, 1, 4}, Seat{0, 2, 4}, Seat{0, 3, 4}});
}

TEST(Connect, FindsNodesOfUnequalSizeAndTakesTheSites) {
  const auto server = host_tcp_store(0);
  const Environment environment = {
      .world_size = 4, .master_address = "127.0.0.1", .master_port = server.port, .store_hosted = true};
  join_and_sum(environment, {Seat{{}, 0, 3}, Seat{{}, 1, 3}, Seat{{}, 2, 3}, Seat{{}, 0, 1}},
               Layout{.node_sizes = {3, 1}, .sites = 2});
}

TEST(Connect, RefusesALauncherThatStartedOtherNodes) {
  EXPECT_THAT(message([] { connect(Environment{}, {}, Layout::even(2, 2)); }),
              HasSubstr("--nodes, --ranks-per-node: got 2 nodes x 2 ranks, the launcher started 1 nodes x 1 ranks"));
}

}  // namespace
}  // namespace prunex::comm
