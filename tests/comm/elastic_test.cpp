// Ranks that outlive others. A rank that is a thread ends by closing its door and its groups.
#include "prunex/comm/elastic/elastic.h"

#include <ATen/ATen.h>
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "prunex/comm/meet/store.h"
#include "tests/comm/quick_ranks.h"
#include "tests/stranger.h"

namespace prunex::comm {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Member {
  Hierarchy& ranks;
  Elastic& elastic;

  /// Sum over all ranks of 1 for node 0, 10 for node 1, …
  double sum() const {
    at::Tensor value = at::full({1}, std::pow(10.0, elastic.node()), at::kDouble);
    ranks.world->all_reduce(value);
    return value.item<double>();
  }
};

/// What became of each rank: "" or what it threw.
std::vector<std::string> run_elastic(const Layout& shape, const std::function<void(Member)>& body, int least = 0,
                                     std::chrono::milliseconds silence = quick().heartbeat_timeout) {
  const auto store = make_memory_store();
  std::vector<std::string> ends(static_cast<size_t>(shape.world_size()));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < shape.world_size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Hierarchy ranks = connect({shape.node_sizes, rank, shape.sites}, *store, quick());
        Elastic elastic(ranks, {.silence = silence, .timeout = 20s, .least_nodes = least, .patience = 3s});
        body({ranks, elastic});
      } catch (const std::exception& error) {
        ends[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return ends;
}

/// Does it, regrouping as often as ranks are lost, or until exchange `exchange` counts without.
std::vector<Change> outlive(Member member, const std::function<void()>& work, int64_t exchange = INT64_MAX) {
  std::vector<Change> changes;
  for (;;) {
    try {
      work();
      return changes;
    } catch (const std::runtime_error&) {
      if (!member.elastic.has_lost()) throw;
      changes.push_back(member.elastic.regroup());
      if (changes.back().transactions >= exchange) return changes;
    }
  }
}

class LosesNode : public testing::TestWithParam<int> {};

TEST_P(LosesNode, TheOthersGoOn) {
  const int lost = GetParam();
  const double all = 111 - std::pow(10.0, lost);
  const auto ends = run_elastic(Layout::even(3, 1), [&](Member member) {
    member.elastic.commit(1, 7);
    if (member.elastic.node() == lost) return;
    double sum = 0;
    const auto changes = outlive(member, [&] { sum = member.sum(); });
    EXPECT_EQ(sum, all);
    ASSERT_EQ(changes.size(), 1U);
    EXPECT_THAT(changes[0].lost, ElementsAre(lost));
    EXPECT_EQ(changes[0].transactions, 1);
    EXPECT_EQ(member.elastic.roster().epoch, 1);
    EXPECT_EQ(member.ranks.layout.nodes(), 2);
    member.elastic.commit(2, 8);
  });
  EXPECT_THAT(ends, testing::Each(IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(Nodes, LosesNode, testing::Values(0, 1, 2));

TEST(Elastic, TheLastOneGoesOnAlone) {
  const auto ends = run_elastic(Layout::even(4, 1), [&](Member member) {
    const int node = member.elastic.node();
    for (int lost = 0; lost < 3; ++lost) {
      if (node == lost) return;
      double sum = 0;
      outlive(member, [&] { sum = member.sum(); });
    }
    EXPECT_EQ(node, 3);
    EXPECT_THAT(member.elastic.roster().nodes, ElementsAre(3));
    member.elastic.commit(1, 1);
  });
  EXPECT_THAT(ends, testing::Each(IsEmpty()));
}

/// It has done all that the others have begun, so that nobody waits for it.
TEST(Elastic, ANodeIsLostThatNobodyWaitsFor) {
  const auto ends = run_elastic(Layout::even(3, 1), [&](Member member) {
    member.elastic.commit(1, 7);
    if (member.elastic.node() == 1) return;
    EXPECT_TRUE(member.elastic.has_lost());
    EXPECT_THAT(member.elastic.regroup().lost, ElementsAre(1));
    EXPECT_EQ(member.sum(), 101);
  });
  EXPECT_THAT(ends, testing::Each(IsEmpty()));
}

TEST(Elastic, ANodeIsLostWithAnyOfItsRanks) {
  std::atomic<int> went_on = 0;
  const auto ends = run_elastic(Layout::even(3, 2), [&](Member member) {
    if (member.ranks.layout.rank == 1) return;  // of node 0
    double sum = 0;
    outlive(member, [&] { sum = member.sum(); });
    EXPECT_EQ(sum, 220);
    ++went_on;
  });
  EXPECT_EQ(went_on, 4);
  EXPECT_THAT(ends[0], HasSubstr("of this node, 0: the node is lost"));
}

TEST(Elastic, NodesOfDifferentSizesAreLost) {
  const auto ends = run_elastic({.node_sizes = {2, 1, 3}}, [&](Member member) {
    if (member.elastic.node() == 0) return;
    double sum = 0;
    const auto changes = outlive(member, [&] { sum = member.sum(); });
    EXPECT_EQ(sum, 10 + 3 * 100);
    ASSERT_EQ(changes.size(), 1U);
    EXPECT_EQ(changes[0].ranks_lost, 2);
    EXPECT_THAT(member.ranks.layout.node_sizes, ElementsAre(1, 3));
  });
  EXPECT_THAT(ends, testing::Each(IsEmpty()));
}

TEST(Elastic, SitesLastAsLongAsTheyAreEqual) {
  const auto ends = run_elastic({.node_sizes = {1, 1, 1, 1}, .sites = 2}, [&](Member member) {
    const int node = member.elastic.node();
    for (const int lost : {3, 0}) {
      if (node == lost) return;
      double sum = 0;
      outlive(member, [&] { sum = member.sum(); });
      EXPECT_EQ(sum, lost == 3 ? 111 : 110);
      EXPECT_EQ(member.ranks.layout.sites, lost == 3 ? 1 : 2);
      EXPECT_EQ(member.ranks.site != nullptr, lost == 0);
    }
    EXPECT_EQ(member.ranks.layout.site(), node - 1);
  });
  EXPECT_THAT(ends, testing::Each(IsEmpty()));
}

/// Those who connect do not wait for as long as it may take to connect, which here is two minutes, whether they ask
/// where the lost one is or know that already.
class LosesNodeMeanwhile : public testing::TestWithParam<bool> {};

TEST_P(LosesNodeMeanwhile, TheOthersConnect) {
  const Socket listener = listen_on({"127.0.0.1", 0}, 8);
  const auto ends = run_elastic(
      Layout::even(4, 1),
      [&](Member member) {
        const int node = member.elastic.node();
        if (node == 1) return;
        std::vector<std::string> failures;
        member.ranks.connect_others = [&, connects = member.ranks.connect_others](
                                          const Layout& layout, Store& store,
                                          std::chrono::milliseconds within) -> Hierarchy {
          if (node == 2 && GetParam()) {
            store.set("joined/1", fmt::format("{}|{}", describe(layout), network_identity()));
            store.set("world/1", fmt::format("127.0.0.1 {} token", port_of(listener)));
            std::this_thread::sleep_for(500ms);
          }
          if (node == 2) throw std::logic_error("dies");
          try {
            return connects(layout, store, within);
          } catch (const std::runtime_error& error) {
            failures.emplace_back(error.what());
            throw;
          }
        };
        double sum = 0;
        const auto changes = outlive(member, [&] { sum = member.sum(); });
        EXPECT_EQ(sum, 1001);
        ASSERT_EQ(changes.size(), 1U);
        EXPECT_THAT(changes[0].lost, ElementsAre(1, 2));
        EXPECT_THAT(failures, testing::Each(HasSubstr("lost the store"))) << "and no rank awaited to the end";
      },
      0, 60s);
  EXPECT_THAT(ends, ElementsAre("", "", "dies", ""));
}

INSTANTIATE_TEST_SUITE_P(WhetherTheyKnowWhereItIs, LosesNodeMeanwhile, testing::Bool());

TEST(Elastic, FewerNodesThanWantedEnd) {
  const auto ends = run_elastic(
      Layout::even(3, 1),
      [&](Member member) {
        if (member.elastic.node() == 1) return;
        outlive(member, [&] { member.sum(); });
        ADD_FAILURE();
      },
      3);
  EXPECT_THAT(ends[0], HasSubstr("2 of 3 nodes are left, fewer than `min_nodes` 3"));
  EXPECT_THAT(ends[2], testing::Not(IsEmpty()));
}

TEST(Elastic, DifferentResultsAreRefused) {
  const auto ends = run_elastic(Layout::even(2, 1), [&](Member member) {
    member.elastic.commit(1, static_cast<uint64_t>(member.elastic.node()));
  });
  EXPECT_THAT(ends[0], HasSubstr("after transaction 1 rank 0 has 0000000000000000, rank 1 0000000000000001"));
}

/// Exchange by exchange; everybody dies in turn at some point of it. All who commit an exchange have the same sum.
TEST(Elastic, WhatCountsIsTheSameForAll) {
  std::mutex mutex;
  std::map<int64_t, double> results;
  const auto ends = run_elastic(Layout::even(5, 1), [&](Member member) {
    for (int64_t k = 1; k <= 8; ++k) {
      const bool dies = member.elastic.node() == (k / 2 + 2) % 5 && k % 2 == 0 && k < 8;
      double sum = 0;
      const auto work = [&] {
        if (dies && k == 2) throw std::logic_error("dies");
        sum = member.sum();
        if (dies) throw std::logic_error("dies");
        member.elastic.commit(k, static_cast<uint64_t>(sum));
      };
      outlive(member, work, k);
      const std::lock_guard lock(mutex);
      EXPECT_EQ(results.emplace(k, sum).first->second, sum) << k;
    }
  });
  EXPECT_EQ(std::count(ends.begin(), ends.end(), "dies"), 3);
  EXPECT_EQ(results.size(), 8U);
}

TEST(Door, TurnsStrangersAwayAndAnswersFriends) {
  const LinkKey key = link_key({"what only friends know"}, "door", "token");
  Door door({"127.0.0.1"}, key, 20ms);
  door.set_formed({2, {0, 1}}, {});
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  std::vector<Socket> strangers;
  for (const std::string& words :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100'000, '\xff'), std::string("")}) {
    for (int i = 0; i < 50; ++i) {
      strangers.push_back(connect_to(door.endpoint(), deadline));
      tests::send_all(strangers.back(), words.data(), words.size(), deadline);
    }
  }
  EXPECT_EQ(presence_at(door.endpoint(), key, 2s), Presence::kThere);
  EXPECT_NE(presence_at(door.endpoint(), link_key({}, "door", "token"), 300ms), Presence::kThere);

  const Report mine{.node = 1, .formed = {2, {0, 1}}, .seen = 2}, left{.node = 3, .formed = {1, {0, 1, 3}}, .seen = 1};
  EXPECT_EQ(presence_at(door.endpoint(), key, mine, 2s), Presence::kThere);
  EXPECT_EQ(presence_at(door.endpoint(), key, left, 2s), Presence::kWentOn);
  EXPECT_TRUE(door.reports().empty()) << "who asks does not wait to be told";
  Call call(door.endpoint(), key, mine, 2s);
  Call late(door.endpoint(), key, left, 2s);
  std::optional<Call::Answer> answer;
  while (!(answer = late.hear(20ms))) {
  }
  EXPECT_TRUE(answer->is_out);
  while (door.reports().empty()) call.hear(5ms);  // who calls has its part in the proof
  EXPECT_EQ(door.reports().front().text(), mine.text());
  door.tell({3, {1}}, "here you are");
  while (!(answer = call.hear(20ms))) {
  }
  EXPECT_EQ(answer->message, "here you are");
}

/// Binds to another address of this machine first.
Socket stranger_from(const std::string& host, const Endpoint& door) {
  Socket socket = opened(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  EXPECT_EQ(bind(socket.fd(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  address.sin_port = htons(door.port);
  inet_pton(AF_INET, door.host.c_str(), &address.sin_addr);
  EXPECT_EQ(::connect(socket.fd(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return socket;
}

TEST(Door, HasRoomForFriendsWhenAStrangerTakesAllPlaces) {
  const LinkKey key = link_key({"what only friends know"}, "door", "token");
  const Door door({"127.0.0.1"}, key, 5ms);
  Call call(door.endpoint(), key, 5s);  // its part in the proof comes late
  std::vector<Socket> flood;
  for (int i = 0; i < 200; ++i) flood.push_back(stranger_from("127.0.0.2", door.endpoint()));
  std::optional<Call::Answer> answer;
  while (!answer && !call.lives()) answer = call.hear(5ms);
  EXPECT_TRUE(call.lives());
}

TEST(Door, ThatHangsUpIsNotThatOfAProcessThatHasEnded) {
  const Socket listener = listen_on({"127.0.0.1", 0}, 8);
  const Endpoint endpoint{"127.0.0.1", port_of(listener)};
  std::atomic<bool> over = false;
  std::atomic<int> calls = 0;
  std::thread process([&] {
    while (!over) {
      calls += accept_from(listener).fd() >= 0;
      std::this_thread::sleep_for(1ms);
    }
  });
  EXPECT_EQ(presence_at(endpoint, {}, 300ms), Presence::kSilent);
  EXPECT_EQ(presence_at(endpoint, {}, Report(), 300ms), Presence::kSilent);
  over = true;
  process.join();
  EXPECT_GT(calls, 3);
}

TEST(Door, IsClosedWhenItsProcessHasEnded) {
  std::optional<Door> door(std::in_place, Endpoint{"127.0.0.1"}, LinkKey{}, 20ms);
  const Endpoint endpoint = door->endpoint();
  door.reset();
  EXPECT_EQ(presence_at(endpoint, {}, 2s), Presence::kEnded);
  const Socket listener = listen_on({"127.0.0.1", 0}, 1);  // of a process that is stopped
  EXPECT_EQ(presence_at({"127.0.0.1", port_of(listener)}, {}, 200ms), Presence::kSilent);
  EXPECT_EQ(presence_at({"127.0.0.1", port_of(listener)}, {}, Report(), 200ms), Presence::kSilent);
}

}  // namespace
}  // namespace prunex::comm
