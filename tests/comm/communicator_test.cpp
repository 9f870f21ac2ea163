// What the public calls check, cut and count, with a backend that only notes what it is asked for.
#include "prunex/comm/communicator.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "prunex/comm/connect.h"
#include "tests/texts.h"

namespace prunex::comm {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::message;

class NotedCommunicator final : public Communicator {
 public:
  explicit NotedCommunicator(int size) : Communicator("noted", 0, size) {}
  std::vector<int64_t> calls;  // elements per call of the backend; 0 for a barrier
  void abort(const std::string&) override {}

 private:
  void do_all_reduce(at::Tensor& tensor, Reduce) override { calls.push_back(tensor.numel()); }
  void do_broadcast(at::Tensor& tensor, int) override { calls.push_back(tensor.numel()); }
  void do_barrier() override { calls.push_back(0); }
  void do_reduce_scatter(at::Tensor& tensor, const std::vector<Range>&) override { calls.push_back(tensor.numel()); }
  void do_all_gather_parts(at::Tensor& tensor, const std::vector<Range>&) override { calls.push_back(tensor.numel()); }
  void do_all_to_all(at::Tensor&, const at::Tensor& input, const std::vector<Range>&) override {
    calls.push_back(input.numel());
  }
};

TEST(Communicator, CutsLargeTensorsInBucketsOf32MB) {
  NotedCommunicator group(2);
  auto x = at::empty({kBucketBytes / 4 * 2 + 5}, at::kFloat);
  group.all_reduce(x);
  group.broadcast(x);
  const int64_t bucket = kBucketBytes / 4;
  EXPECT_THAT(group.calls, ElementsAre(bucket, bucket, 5, bucket, bucket, 5));
}

TEST(Communicator, CountsOperationsPayloadAndSentBytes) {
  NotedCommunicator group(2);
  auto x = at::empty({10, 3}, at::kFloat);
  auto gathered = at::empty({2, 10, 3}, at::kFloat);
  group.all_reduce(x);            // two ranks: half the buffer out, half of it back
  group.broadcast(x, 1);          // rank 0 only receives
  group.broadcast(x, 0);          // and sends once
  group.all_gather(gathered, x);  // once
  group.barrier();
  EXPECT_EQ(group.traffic().operations, 5);
  EXPECT_EQ(group.traffic().bytes.payload, 4 * 120);
  EXPECT_EQ(group.traffic().bytes.sent, 120 + 0 + 120 + 120);
  EXPECT_GT(group.traffic().seconds, 0);
}

// Rank 0 of four on nodes 0, 0, 1, 1: its ring neighbour is at home, two of the three others are elsewhere.
TEST(Communicator, CountsApartWhatLeavesTheNode) {
  NotedCommunicator group(4);
  group.stand_on({0, 0, 1, 1});
  auto moved = [&, before = Volume()](const std::function<void()>& call) mutable {
    call();
    const Volume volume = group.traffic().bytes - before;
    before = group.traffic().bytes;
    return std::vector<double>{double(volume.sent), double(volume.sent_to_nodes), volume.least_to_nodes};
  };
  auto x = at::empty({8}, at::kFloat);
  auto gathered = at::empty({4, 8}, at::kFloat), mine = at::empty({4, 2}, at::kFloat);
  const auto quarters = parts({0, 8}, 4);
  EXPECT_THAT(moved([&] { group.all_reduce(x); }),
              ElementsAre(48, 0, 16));                                      // 2 (2-1)/2 x 32 bytes a node, of two ranks
  EXPECT_THAT(moved([&] { group.broadcast(x); }), ElementsAre(64, 32, 8));  // to ranks 1 and 2
  EXPECT_THAT(moved([&] { group.all_gather(gathered, x); }), ElementsAre(96, 64, 32));
  EXPECT_THAT(moved([&] { group.reduce_scatter(x, quarters); }), ElementsAre(24, 16, 8));
  EXPECT_THAT(moved([&] { group.all_gather_parts(x, quarters); }), ElementsAre(24, 16, 8));
  EXPECT_THAT(moved([&] { group.all_to_all(mine, x, quarters); }), ElementsAre(24, 16, 16));
  // what a rank keeps for itself differs, the mean over ranks is the bound
  auto most = at::empty({4, 5}, at::kFloat);
  EXPECT_THAT(moved([&] { group.all_to_all(most, x, {{0, 5}, {5, 6}, {6, 7}, {7, 8}}); }), ElementsAre(12, 8, 16));
}

TEST(Communicator, OneRankDoesNothingButGather) {
  NotedCommunicator group(1);
  auto x = at::arange(4, at::kFloat);
  auto gathered = at::zeros({1, 4}, at::kFloat);
  group.all_reduce(x);
  group.broadcast(x);
  group.all_gather(gathered, x);
  group.barrier();
  EXPECT_TRUE(group.calls.empty());
  EXPECT_EQ(group.traffic().operations, 0);
  EXPECT_TRUE(at::equal(gathered[0], x));
}

TEST(Communicator, EmptyTensorsTravelNowhere) {
  NotedCommunicator group(2);
  auto x = at::empty({0}, at::kFloat);
  group.all_reduce(x);
  EXPECT_TRUE(group.calls.empty());
}

TEST(Communicator, TakesAnyDenseLayout) {
  NotedCommunicator group(2);
  auto x = at::empty({2, 3, 4, 5}, at::kFloat).contiguous(at::MemoryFormat::ChannelsLast);
  group.all_reduce(x);
  EXPECT_THAT(group.calls, ElementsAre(120));
}

TEST(Communicator, RefusesTensorsWithGaps) {
  NotedCommunicator group(2);
  auto x = at::empty({4, 6}, at::kFloat).narrow(1, 0, 3);
  EXPECT_THAT(message([&] { group.all_reduce(x); }), HasSubstr("gaps"));
}

TEST(Communicator, RefusesTypesThatTheBackendsGetWrong) {
  NotedCommunicator group(2);
  for (auto type : {at::kHalf, at::kBFloat16, at::kBool, at::kInt}) {
    auto x = at::empty({4}, type);
    EXPECT_THAT(message([&] { group.all_reduce(x); }), HasSubstr("wanted float, double, int64 or uint8"));
    group.broadcast(x);
  }
}

TEST(Communicator, RefusesARootOutsideTheGroup) {
  NotedCommunicator group(2);
  auto x = at::empty({4}, at::kFloat);
  EXPECT_THAT(message([&] { group.broadcast(x, 2); }), HasSubstr("rank 2 of 2 in noted"));
  EXPECT_THAT(message([&] { group.broadcast(x, -1); }), HasSubstr("rank -1"));
}

TEST(Communicator, RefusesAGatherIntoTheWrongShape) {
  NotedCommunicator group(2);
  auto x = at::empty({4}, at::kFloat);
  auto flat = at::empty({8}, at::kFloat);
  EXPECT_THAT(message([&] { group.all_gather(flat, x); }), HasSubstr("wanted [2, 4]"));
  auto doubles = at::empty({2, 4}, at::kDouble);
  EXPECT_THAT(message([&] { group.all_gather(doubles, x); }), HasSubstr("wanted Float"));
}

TEST(FirstOther, IsTheLowestRankWithoutTheNumberOfRank0) {
  const auto first_others = [](const std::array<int64_t, 3>& numbers) {
    std::array<std::optional<int>, 3> others;
    run_ranks(3, 1, [&](Hierarchy& h) { others[h.layout.rank] = first_other(numbers[h.layout.rank], *h.world); });
    return others;
  };
  EXPECT_THAT(first_others({7, 7, 8}), Each(2));
  EXPECT_THAT(first_others({7, 8, 9}), Each(1));
  EXPECT_THAT(first_others({8, 7, 7}), Each(1));
  EXPECT_THAT(first_others({7, 7, 7}), Each(std::nullopt));
}

}  // namespace
}  // namespace prunex::comm
