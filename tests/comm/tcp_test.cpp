// Collectives over TCP, ranks as threads; expected values are closed forms.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <thread>

#include "prunex/comm/connect.h"
#include "prunex/comm/tcp/tcp_communicator.h"
#include "tests/texts.h"

namespace prunex::comm {
namespace {

using ::testing::HasSubstr;
using ::testing::StrEq;
using tests::message;

at::Tensor noise(int64_t count, uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn({count}, generator);
}

TEST(Tcp, AllReduceSumsEveryTypeAndSize) {
  for (int ranks : {1, 2, 3, 5}) {
    run_ranks(1, ranks, [&](Hierarchy& h) {
      for (auto type : {at::kFloat, at::kDouble, at::kLong, at::kByte}) {
        for (int64_t count : {1, 2, 7, 1000, 300001}) {
          const auto base = at::arange(count).remainder(10).to(type);
          auto x = base * (h.layout.rank + 1);
          h.world->all_reduce(x);
          EXPECT_TRUE(at::equal(x, base * (ranks * (ranks + 1) / 2))) << type << " " << count << " " << ranks;
        }
      }
    });
  }
}

TEST(Tcp, AllReduceTakesMaxima) {
  run_ranks(1, 3, [](Hierarchy& h) {
    const int rank = h.layout.rank;
    auto largest = (at::arange(100).remainder(3) == rank).to(at::kDouble) * (rank + 1);
    h.world->all_reduce(largest, Reduce::kMax);
    EXPECT_TRUE(at::equal(largest, at::arange(100).remainder(3).to(at::kDouble) + 1));
    auto united = (at::arange(50).remainder(4) == rank).to(at::kByte);
    h.world->all_reduce(united, Reduce::kMax);
    EXPECT_TRUE(at::equal(united, (at::arange(50).remainder(4) < 3).to(at::kByte)));
  });
}

TEST(Tcp, ResultsAreBitIdenticalOnAllRanksAndInEveryRun) {
  std::vector<at::Tensor> results(8);
  for (int run = 0; run < 2; ++run) {
    run_ranks(1, 4, [&](Hierarchy& h) {
      auto x = noise(100003, h.layout.rank);
      h.world->all_reduce(x);
      results[run * 4 + h.layout.rank] = x.view(at::kInt);
    });
  }
  const auto near = noise(100003, 0) + noise(100003, 1) + noise(100003, 2) + noise(100003, 3);
  EXPECT_TRUE(at::allclose(results[0].view(at::kFloat), near, 1e-5, 1e-5));
  for (const auto& result : results) EXPECT_TRUE(at::equal(result, results[0]));
}

TEST(Tcp, AllReduceOfSeveralBucketsIsWhole) {
  run_ranks(1, 2, [](Hierarchy& h) {
    auto x = at::full({kBucketBytes / 4 + 1001}, h.layout.rank + 1.0f);
    h.world->all_reduce(x);
    EXPECT_TRUE(at::equal(x, at::full_like(x, 3)));
  });
}

TEST(Tcp, AllReduceWritesTensorsThatTrainAndAnyLayout) {
  run_ranks(1, 2, [](Hierarchy& h) {
    auto x = at::ones({2, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_(true);
    h.world->all_reduce(x);
    EXPECT_TRUE(at::equal(x.detach(), at::full({2, 3, 4, 4}, 2.0f)));
  });
}

TEST(Tcp, BroadcastsAnyTypeFromAnyRoot) {
  for (int ranks : {2, 3, 5}) {
    run_ranks(1, ranks, [&](Hierarchy& h) {
      for (int root = 0; root < ranks; ++root) {
        for (auto type : {at::kFloat, at::kBFloat16, at::kBool, at::kInt}) {
          const auto wanted = (at::arange(33).remainder(5) + root).to(type);
          auto x = h.layout.rank == root ? wanted.clone() : at::zeros_like(wanted);
          h.world->broadcast(x, root);
          EXPECT_TRUE(at::equal(x, wanted)) << ranks << " " << root << " " << type;
        }
      }
    });
  }
}

TEST(Tcp, GathersInRankOrder) {
  for (int64_t count : {1, 2, 1001}) {
    run_ranks(1, 3, [&](Hierarchy& h) {
      auto all = at::empty({3, count}, at::kByte);
      h.world->all_gather(all, at::full({count}, h.layout.rank + 7, at::kByte));
      EXPECT_TRUE(at::equal(all, (at::arange(3) + 7).to(at::kByte).unsqueeze(1).expand({3, count})));
    });
  }
}

TEST(Tcp, ReduceScatterAddsUpMyPartAndLeavesTheOthers) {
  const std::vector<Range> parts = {{0, 3}, {3, 3}, {3, 10}};
  run_ranks(1, 3, [&](Hierarchy& h) {
    const auto input = (at::arange(10) * (h.layout.rank + 1)).to(at::kDouble);
    auto x = input.clone();
    h.world->reduce_scatter(x, parts);
    const Range mine = parts[h.layout.rank];
    auto wanted = input.clone();
    wanted.slice(0, mine.begin, mine.end) = at::arange(mine.begin, mine.end).to(at::kDouble) * 6;
    EXPECT_TRUE(at::equal(x, wanted));
  });
}

TEST(Tcp, GatheredPartsAreWhatTheirRanksHave) {
  const std::vector<Range> parts = {{0, 3}, {3, 3}, {3, 10}};
  run_ranks(1, 3, [&](Hierarchy& h) {
    auto x = at::full({10}, h.layout.rank, at::kLong);
    h.world->all_gather_parts(x, parts);
    EXPECT_TRUE(at::equal(x, at::tensor({0, 0, 0, 2, 2, 2, 2, 2, 2, 2}, at::kLong)));
  });
}

TEST(Tcp, AllRanksAsOneGroupCountWhatLeavesTheNode) {
  std::vector<Volume> moved(4);
  run_ranks(2, 2, [&](Hierarchy& h) {
    auto flat = as_one_node(h);
    EXPECT_EQ(describe(flat.layout), "1 nodes x 4 ranks");
    auto x = at::full({1000}, h.layout.rank + 1.0);
    flat.node->all_reduce(x);
    EXPECT_TRUE(x.equal(at::full({1000}, 10.0)));
    flat.rail->all_reduce(x);
    EXPECT_TRUE(x.equal(at::full({1000}, 10.0)));
    moved[h.layout.rank] = moved_by_exchanges(h);
  });
  // the ring passes 2 (4-1)/4 of the tensor over each of its four links, two of which join the nodes
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(moved[rank].sent, 6000) << rank;
    EXPECT_EQ(moved[rank].sent_to_nodes, rank % 2 == 1 ? 6000 : 0) << rank;
    EXPECT_EQ(moved[rank].least_to_nodes, 2000) << rank;
  }
}

TEST(Tcp, AnAbortEndsWaitsAtOnceAndForGood) {
  std::vector<std::string> seen(2);
  std::atomic<bool> aborted = false;
  run_ranks(1, 2, [&](Hierarchy& h) {
    const int rank = h.layout.rank;
    std::thread other;
    if (rank == 0) {
      other = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        h.world->abort("lost rank 7");
        aborted = true;
      });
    }
    while (rank == 1 && !aborted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    seen[rank] = message([&] { h.world->barrier(); });
    EXPECT_THAT(message([&] { h.world->barrier(); }), HasSubstr("the group broke earlier"));
    if (other.joinable()) other.join();
  });
  EXPECT_THAT(seen[0], StrEq("[comm] rank 0: barrier in world: lost rank 7"));
  EXPECT_THAT(seen[1], HasSubstr("[comm] rank 1: barrier in world: lost rank 0"));
}

TEST(Tcp, NodeAndRailAreTheRowsAndColumnsOfTheWorld) {
  run_ranks(2, 3, [](Hierarchy& h) {
    const int node = h.layout.node();
    const int local = h.layout.local_rank();
    auto digit = at::full({1}, int64_t(1) << (8 * h.layout.rank));
    auto in_node = digit.clone();
    auto in_rail = digit.clone();
    h.node->all_reduce(in_node);
    h.rail->all_reduce(in_rail);
    EXPECT_EQ(in_node.item<int64_t>(), int64_t(0x010101) << (24 * node));
    EXPECT_EQ(in_rail.item<int64_t>(), int64_t(0x01000001) << (8 * local));
    EXPECT_EQ(h.node->rank(), local);
    EXPECT_EQ(h.rail->rank(), node);
  });
}

// The value 10^rank of every member tells who was summed: digits from the right are ranks.
int64_t members(Communicator& group, int rank) {
  auto x = at::full({1}, static_cast<int64_t>(std::llround(std::pow(10, rank))));
  group.all_reduce(x);
  return x.item<int64_t>();
}

TEST(Tcp, RailsReachAsFarAsTheSmallestNode) {
  run_ranks({.node_sizes = {3, 1, 2}}, [](Hierarchy& h) {
    const int rank = h.layout.rank;
    const std::array<int64_t, 6> nodes = {111, 111, 111, 1000, 110000, 110000};
    const std::array<int64_t, 6> rails = {11001, 10, 100, 11001, 11001, 100000};
    EXPECT_EQ(members(*h.node, rank), nodes[rank]);
    EXPECT_EQ(members(*h.rail, rank), rails[rank]);
    EXPECT_EQ(h.rail->size(), rails[rank] == 11001 ? 3 : 1);
  });
}

TEST(Tcp, SitesCutEveryRailInShares) {
  run_ranks({.node_sizes = {2, 2, 1, 2}, .sites = 2}, [](Hierarchy& h) {
    const int rank = h.layout.rank;
    const std::array<int64_t, 7> sites = {101, 10, 101, 1000, 110000, 110000, 1000000};
    const std::array<int64_t, 7> crosses = {10001, 10, 100100, 1000, 10001, 100100, 1000000};
    EXPECT_EQ(members(*h.site, rank), sites[rank]);
    EXPECT_EQ(members(*h.cross, rank), crosses[rank]);
    EXPECT_EQ(h.rail->size(), h.layout.local_rank() == 0 ? 4 : 1);
  });
}

TEST(Tcp, OneSiteHasNoGroupsOfSites) {
  run_ranks(2, 1, [](Hierarchy& h) { EXPECT_TRUE(h.site == nullptr && h.cross == nullptr); });
}

TEST(Tcp, OneRankNeedsNoNetwork) {
  const auto store = make_memory_store();
  auto h = connect({}, *store, {.interfaces = {"none"}});
  auto x = at::ones({3});
  h.world->all_reduce(x);
  EXPECT_EQ(h.world->size() + h.node->size() + h.rail->size(), 3);
}

TEST(Tcp, ALostRankIsNamedWithTheOperationAndTheGroup) {
  std::string seen;
  run_ranks(2, 2, [&](Hierarchy& h) {
    if (h.layout.rank == 3) h.rail.reset();
    if (h.layout.rank != 1) return;
    auto x = at::ones({1000});
    seen = message([&] {
      for (int i = 0; i < 1000; ++i) h.rail->all_reduce(x);
    });
  });
  EXPECT_THAT(seen, HasSubstr("[comm] rank 1: all_reduce in rail 1: lost rank 3"));
}

TEST(Tcp, ABrokenGroupStaysBroken) {
  run_ranks(1, 2, [](Hierarchy& h) {
    if (h.layout.rank == 1) return h.world.reset();
    EXPECT_THAT(message([&] { h.world->barrier(); }), HasSubstr("lost rank 1"));
    EXPECT_THAT(message([&] { h.world->barrier(); }), HasSubstr("barrier in world: the group broke earlier"));
  });
}

TEST(Tcp, ATimeoutNamesTheRanksWaitedFor) {
  std::vector<std::string> seen(2);
  const ConnectOptions options = {.timeout = std::chrono::seconds(3)};
  run_ranks(
      1, 3,
      [&](Hierarchy& h) {
        if (h.layout.rank == 2) return;  // it stays connected until all are done
        auto x = at::ones({10});
        seen[h.layout.rank] = message([&] { h.world->broadcast(x, 2); });
      },
      options);
  EXPECT_THAT(seen[0], HasSubstr("rank 0: broadcast in world: no answer within 3 s from rank"));
  EXPECT_THAT(seen[0], HasSubstr("2"));
}

TEST(RunRanks, RethrowsTheFirstFailureWhileOthersWait) {
  const auto run = [] {
    run_ranks(2, 2, [](Hierarchy& h) {
      if (h.layout.rank == 2) throw std::out_of_range("rank 2 failed first");
      auto x = at::ones({100});
      for (;;) {
        h.node->all_reduce(x);
        h.rail->all_reduce(x);
      }
    });
  };
  EXPECT_THAT(message(run), StrEq("rank 2 failed first"));
}

TEST(Connect, NamesTheRanksThatDidNotCome) {
  const auto store = make_memory_store();
  const ConnectOptions options = {.join_timeout = std::chrono::seconds(1)};
  std::thread other([&] { message([&] { connect(Layout::even(2, 2, 2), *store, options); }); });
  const auto text = message([&] { connect(Layout::even(2, 2, 0), *store, options); });
  other.join();
  EXPECT_THAT(text, HasSubstr("2 of 4 ranks joined within 1 s: missing ranks 1, 3"));
}

TEST(Connect, RefusesRanksThatDisagreeAboutTheLayout) {
  const auto store = make_memory_store();
  std::thread other([&] { message([&] { connect(Layout::even(2, 1, 1), *store); }); });
  EXPECT_THAT(message([&] { connect(Layout::even(1, 2, 0), *store); }),
              HasSubstr("rank 0 has 1 nodes x 2 ranks, rank 1 has 2 nodes x 1 ranks"));
  other.join();
}

TEST(Connect, RefusesAnInterfaceThatIsNotThere) {
  EXPECT_THAT(message([] {
                run_ranks(1, 2, [](Hierarchy&) {}, {.interfaces = {"lo", "wan7"}});
              }),
              HasSubstr("`interface`: got wan7, no such interface; wanted one of"));
}

TEST(Connect, RefusesARankOutsideTheLayout) {
  const auto store = make_memory_store();
  EXPECT_THAT(message([&] { connect(Layout::even(2, 2, 4), *store); }),
              HasSubstr("rank 4 of 2 nodes x 2 ranks: no such rank"));
  EXPECT_THAT(message([&] { connect(Layout::even(0, 2, 0), *store); }), HasSubstr("0 nodes"));
  EXPECT_THAT(message([&] { connect({.node_sizes = {2, 0}}, *store); }), HasSubstr("every node needs a rank"));
  const Layout lopsided = {.node_sizes = {1, 1, 1}, .sites = 2};
  EXPECT_THAT(message([&] { connect(lopsided, *store); }),
              HasSubstr("[comm] 3 nodes x 1 ranks on 2 sites: the sites must divide the nodes"));
}

}  // namespace
}  // namespace prunex::comm
