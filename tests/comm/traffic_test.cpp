// Counted bytes against closed forms and against what the kernel counted.
#include "prunex/comm/traffic.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <thread>

#include "prunex/comm/connect.h"
#include "tests/network.h"

namespace prunex::comm {
namespace {

TEST(Traffic, AllRanksOfAnAllReduceSendTwiceTheTensorButForOneRank) {
  for (int size : {2, 3, 4, 7}) {
    for (int64_t elements : {1, 2, 5, 1000, 262144, 1000003, 8388608}) {
      for (int64_t element_size : {1, 4, 8}) {
        int64_t sent = 0;
        for (int rank = 0; rank < size; ++rank) sent += all_reduce_sent_bytes(elements, element_size, {rank, size});
        EXPECT_EQ(sent, 2 * (size - 1) * elements * element_size) << size << " " << elements;
      }
    }
  }
}

TEST(Traffic, ARankOfAnEvenAllReduceSendsTheLeastPossible) {
  // 2(n-1)/n S where n divides S
  EXPECT_EQ(all_reduce_sent_bytes(4096, 4, {1, 2}), 16384);
  EXPECT_EQ(all_reduce_sent_bytes(8 * 1024, 4, {3, 4}), 2 * 3 * 8192);
}

TEST(Traffic, ARankOfAShortAllReduceSendsAllButTheBlocksOfTheNextTwoRanks) {
  // 3 ranks, 4 floats: blocks of 1, 1 and 2
  EXPECT_EQ(all_reduce_sent_bytes(4, 4, {0, 3}), 4 * (8 - 1 - 2));
  EXPECT_EQ(all_reduce_sent_bytes(4, 4, {1, 3}), 4 * (8 - 2 - 1));
  EXPECT_EQ(all_reduce_sent_bytes(4, 4, {2, 3}), 4 * (8 - 1 - 1));
}

TEST(Traffic, ABroadcastGoesDownABinomialTree) {
  // 6 ranks from root 2: virtual ranks 0 -> 1, 2, 4; 1 -> 3, 5; the others are leaves
  const std::vector<int64_t> sends = {0, 0, 3, 2, 0, 0};
  for (int rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(static_cast<int64_t>(binomial_tree(2, {rank, 6}).children.size()), sends[rank]) << rank;
  }
}

struct Counts {
  int64_t counted = 0;  // by the communicators of all ranks
  int64_t kernel = 0;   // by the interface
  double excess() const { return double(kernel) / counted - 1; }
};

using Operation = std::function<void(Communicator&)>;

Counts count(int ranks, const Operation& operation) {
  std::vector<int64_t> sent(ranks);
  Counts counts;
  run_ranks(1, ranks, [&](Hierarchy& h) {
    h.world->barrier();
    const auto before = tests::interface_bytes("lo");
    h.world->barrier();
    operation(*h.world);
    sent[h.layout.rank] = h.world->traffic().bytes.sent;
    h.world->barrier();
    if (h.layout.rank == 0) counts.kernel = tests::interface_bytes("lo") - before;
  });
  counts.counted = std::accumulate(sent.begin(), sent.end(), int64_t(0));
  return counts;
}

// Where the loopback interface is shared with others, their bytes come on top: the quietest of some tries.
Counts quietest_count(int ranks, const Operation& operation) {
  Counts best;
  std::thread([&] {
    const int tries = tests::enter_private_network() ? 1 : 10;
    for (int i = 0; i < tries; ++i) {
      const auto counts = count(ranks, operation);
      if (i == 0 || counts.kernel < best.kernel) best = counts;
      if (std::abs(best.excess()) < 0.06) break;
    }
  }).join();
  return best;
}

TEST(Traffic, SentBytesMatchTheKernelsInterfaceCounters) {
  constexpr int64_t kCount = 5'000'001;
  const std::vector<std::pair<std::string, Operation>> operations = {{"all_reduce",
                                                                      [](Communicator& group) {
                                                                        auto x = at::ones({kCount});
                                                                        group.all_reduce(x);
                                                                      }},
                                                                     {"broadcast",
                                                                      [](Communicator& group) {
                                                                        auto x = at::ones({kCount});
                                                                        group.broadcast(x, 1);
                                                                      }},
                                                                     {"all_gather", [](Communicator& group) {
                                                                        auto all = at::empty({group.size(), kCount});
                                                                        group.all_gather(all, at::ones({kCount}));
                                                                      }}};
  for (const auto& [name, operation] : operations) {
    const auto counts = quietest_count(3, operation);
    EXPECT_NEAR(counts.excess(), 0, 0.06) << name << ": counted " << counts.counted << ", kernel " << counts.kernel;
    EXPECT_GE(counts.kernel, counts.counted) << name;
    RecordProperty(name, std::to_string(counts.excess()));
  }
}

}  // namespace
}  // namespace prunex::comm
