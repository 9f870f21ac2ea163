// Collectives through the shared memory of a node, and the pipeline over all ranks; ranks as threads.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <sstream>

#include "prunex/comm/connect.h"
#include "prunex/comm/shm/node_memory.h"
#include "tests/texts.h"

namespace prunex::comm {
namespace {

using ::testing::HasSubstr;
using tests::message;

/// Whole numbers, so that sums are exact in any order; different on every rank.
at::Tensor values(int64_t count, int rank, at::ScalarType type) {
  return ((at::arange(count) * 7 + rank * 13) % 101).to(type);
}

at::Tensor sum_over(const std::vector<int>& ranks, int64_t count, at::ScalarType type) {
  at::Tensor sum = at::zeros({count}, type);
  for (const int rank : ranks) sum += values(count, rank, type);
  return sum;
}

constexpr int64_t kManyWindows = 2 * NodeMemory::kWindowBytes / 4 + 1001;  // of floats: three

TEST(SharedMemory, IsWhatANodeUses) {
  run_ranks(2, 2, [](Hierarchy& h) {
    EXPECT_EQ(h.no_shared_memory, "");
    EXPECT_NE(h.pipeline, nullptr);
  });
  run_ranks(2, 2,
            [](Hierarchy& h) {
              EXPECT_EQ(h.no_shared_memory, "");
              EXPECT_EQ(h.pipeline, nullptr);
            },
            {.shared_memory = false});
}

TEST(SharedMemory, HasNoNameThatCouldBeLeftBehindOrGuessed) {
  const auto first = NodeMemory::create({0, 2, 0});
  const auto second = NodeMemory::open(first->ticket(), {1, 2, 0});
  first->input(0, 0)[0] = 'x';
  EXPECT_EQ(second->input(0, 0)[0], 'x');
  first->close_to_others();
  EXPECT_THAT(message([&] { NodeMemory::open(first->ticket(), {1, 2, 0}); }), HasSubstr("is not that of the node's"));
}

TEST(SharedMemory, IsItsOwnersAlone) {
  const auto memory = NodeMemory::create({0, 2, 0});
  int process = 0, descriptor = 0;
  std::istringstream(memory->ticket()) >> process >> descriptor;
  struct stat status = {};
  ASSERT_EQ(fstat(descriptor, &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600);
  EXPECT_EQ(status.st_uid, geteuid());
}

TEST(SharedMemory, IsNotOpenedByATicketThatSomebodyForged) {
  const auto memory = NodeMemory::create({0, 2, 0});
  std::istringstream fields(memory->ticket());
  std::string process, descriptor, number;
  fields >> process >> descriptor >> number;
  const std::vector<std::string> forged = {"",
                                           "none",
                                           process + " " + descriptor,
                                           process + " " + descriptor + " 0123456789abcdef",
                                           process + " 0 " + number,
                                           "1 " + descriptor + " " + number,
                                           process + " ../../../etc/passwd " + number};
  for (const auto& ticket : forged) {
    EXPECT_THAT(message([&] {
                  NodeMemory::open(ticket, {1, 2, 0});
                }),
                HasSubstr("is not that of the node's"))
        << ticket;
  }
  EXPECT_THAT(message([&] { NodeMemory::open(memory->ticket(), {1, 3, 0}); }), HasSubstr("has another size"));
}

TEST(SharedMemory, DoesWhatMessagesDo) {
  for (const bool shared : {true, false}) {
    for (const int ranks : {2, 3}) {
      run_ranks(1, ranks,
                [&](Hierarchy& h) {
                  const int rank = h.layout.rank;
                  for (const int64_t count : {int64_t{1}, int64_t{2}, int64_t{1000}, kManyWindows}) {
                    auto x = values(count, rank, at::kFloat);
                    auto all = ranks == 2 ? std::vector<int>{0, 1} : std::vector<int>{0, 1, 2};
                    const auto sum = sum_over(all, count, at::kFloat);
                    h.node->all_reduce(x);
                    EXPECT_TRUE(x.equal(sum)) << count;

                    const auto split = parts({0, count}, ranks);
                    auto exchanged = at::empty({ranks, split[rank].size()});
                    h.node->all_to_all(exchanged, values(count, rank, at::kFloat), split);
                    for (int peer = 0; peer < ranks; ++peer) {
                      EXPECT_TRUE(exchanged[peer].equal(slice(values(count, peer, at::kFloat), split[rank]))) << count;
                    }

                    auto scattered = values(count, rank, at::kFloat);
                    h.node->reduce_scatter(scattered, split);
                    auto wanted = values(count, rank, at::kFloat);
                    const Range mine = split[rank];
                    wanted.slice(0, mine.begin, mine.end) = sum.slice(0, mine.begin, mine.end);
                    EXPECT_TRUE(scattered.equal(wanted)) << count;
                    h.node->all_gather_parts(scattered, split);
                    EXPECT_TRUE(scattered.equal(sum)) << count;

                    auto told = values(count, rank, at::kFloat);
                    h.node->broadcast(told, 1);
                    EXPECT_TRUE(told.equal(values(count, 1, at::kFloat))) << count;
                    h.node->barrier();
                  }
                  auto gathered = at::empty({ranks, 5}, at::kLong);
                  h.node->all_gather(gathered, at::full({5}, rank, at::kLong));
                  EXPECT_TRUE(gathered.equal(at::arange(ranks).unsqueeze(1).expand({ranks, 5})));
                  auto united = at::arange(9).eq(rank).to(at::kByte);
                  h.node->all_reduce(united, Reduce::kMax);
                  EXPECT_TRUE(united.equal(at::arange(9).lt(ranks).to(at::kByte)));
                },
                {.shared_memory = shared});
    }
  }
}

TEST(SharedMemory, CountsWhatMessagesCount) {
  std::vector<Traffic> counts;
  for (const bool shared : {true, false}) {
    run_ranks(1, 3,
              [&](Hierarchy& h) {
                auto x = at::ones({1001});
                h.node->all_reduce(x);
                h.node->reduce_scatter(x, parts({0, 1001}, 3));
                h.node->broadcast(x, 2);
                if (h.layout.rank == 2) counts.push_back(h.node->traffic());
              },
              {.shared_memory = shared});
  }
  EXPECT_EQ(counts[0].bytes.sent, counts[1].bytes.sent);
  EXPECT_EQ(counts[0].bytes.payload, counts[1].bytes.payload);
  EXPECT_EQ(counts[0].operations, counts[1].operations);
}

TEST(SharedMemory, ARankThatEndsEndsTheWaitsOfItsNode) {
  std::string seen;
  run_ranks(1, 2,
            [&](Hierarchy& h) {
              if (h.layout.rank == 1) return h.node.reset();
              auto x = at::ones({10});
              seen = message([&] { h.node->all_reduce(x); });
              EXPECT_THAT(message([&] { h.node->barrier(); }), HasSubstr("the group broke earlier"));
            },
            {.heartbeat_timeout = std::chrono::milliseconds(0)});
  EXPECT_EQ(seen, "[comm] rank 0: all_reduce in node 0: lost rank 1");
}

TEST(SharedMemory, ATimeoutNamesTheRank) {
  std::string seen;
  run_ranks(1, 2,
            [&](Hierarchy& h) {
              if (h.layout.rank == 1) return;  // it keeps its groups until all are done
              seen = message([&] { h.node->barrier(); });
            },
            {.timeout = std::chrono::seconds(2)});
  EXPECT_EQ(seen, "[comm] rank 0: barrier in node 0: no answer within 2 s from rank 1");
}

// As a loop does whose ranks disagree: never a sum of what does not belong together.
TEST(SharedMemory, CallsThatDifferAreAnErrorOnAllRanks) {
  using Call = std::function<void(Communicator&)>;
  const auto sum = [](int64_t count, at::ScalarType type) {
    return [=](Communicator& node) {
      at::Tensor x = at::ones({count}, type);
      node.all_reduce(x);
    };
  };
  const Call largest = [](Communicator& node) {
    at::Tensor x = at::ones({10});
    node.all_reduce(x, Reduce::kMax);
  };
  const Call broadcast = [](Communicator& node) {
    at::Tensor x = at::ones({10});
    node.broadcast(x, 0);
  };
  for (const Call& other : {Call(sum(20, at::kFloat)), Call(sum(10, at::kDouble)), largest, broadcast}) {
    std::vector<std::string> seen(2);
    run_ranks(1, 2, [&](Hierarchy& h) {
      const Call call = h.layout.rank == 0 ? Call(sum(10, at::kFloat)) : other;
      seen[h.layout.rank] = message([&] { call(*h.node); });
    });
    EXPECT_THAT(seen[0], HasSubstr("rank 1 calls another operation, or one of another size or type"));
    EXPECT_THAT(seen[1], testing::AnyOf(HasSubstr("rank 0 calls another operation"), HasSubstr("lost rank 0")));
  }
}

TEST(Pipeline, SumsOverAllRanksOfAnyShape) {
  for (const Layout& shape :
       {Layout::even(1, 2), Layout::even(2, 2), Layout::even(3, 2), Layout::even(2, 3), Layout{.node_sizes = {3, 2}}}) {
    run_ranks(shape, [&](Hierarchy& h) {
      std::vector<int> all(static_cast<size_t>(shape.world_size()));
      std::iota(all.begin(), all.end(), 0);
      for (const auto type : {at::kFloat, at::kDouble}) {
        for (const int64_t count : {int64_t{1}, int64_t{7}, int64_t{100'003}, kManyWindows}) {
          if (count == kManyWindows && (type == at::kDouble || shape.nodes() != 2)) continue;
          auto x = values(count, h.layout.rank, type);
          h.pipeline->all_reduce(x);
          EXPECT_TRUE(x.equal(sum_over(all, count, type))) << describe(shape) << " " << count;
        }
      }
    });
  }
}

TEST(Pipeline, IsBitIdenticalOnAllRanks) {
  std::vector<at::Tensor> results(6);
  run_ranks(3, 2, [&](Hierarchy& h) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(h.layout.rank);
    auto x = at::randn({1'000'003}, generator);
    h.pipeline->all_reduce(x);
    results[h.layout.rank] = x;
  });
  for (const auto& result : results) EXPECT_TRUE(result.equal(results[0]));
}

TEST(Pipeline, SendsTheLeastThatAnAllReduceCanAlongTheRails) {
  std::vector<int64_t> sent(4), payload(4);
  constexpr int64_t kCount = 3'000'000;
  run_ranks(2, 2, [&](Hierarchy& h) {
    auto x = at::ones({kCount});
    h.pipeline->all_reduce(x);
    sent[h.layout.rank] = h.rail->traffic().bytes.sent;
    payload[h.layout.rank] = h.rail->traffic().bytes.payload;
  });
  EXPECT_EQ(sent[0] + sent[1] + sent[2] + sent[3], 2 * kCount * 4);  // 2 (M-1) S over both nodes
  EXPECT_EQ(payload[0] + payload[1], kCount * 4);
}

TEST(Pipeline, ALostRankEndsIt) {
  std::vector<std::string> seen(4);
  run_ranks(2, 2, [&](Hierarchy& h) {
    const int rank = h.layout.rank;
    if (rank == 3) {
      h.rail.reset();
      h.node.reset();
      h.pipeline.reset();
      h.watch.reset();
      return;
    }
    auto x = at::ones({5'000'000});
    seen[rank] = message([&] {
      for (int i = 0; i < 1000; ++i) h.pipeline->all_reduce(x);
    });
  });
  for (const int rank : {0, 1, 2}) EXPECT_THAT(seen[rank], HasSubstr("lost rank")) << rank;
}

}  // namespace
}  // namespace prunex::comm
