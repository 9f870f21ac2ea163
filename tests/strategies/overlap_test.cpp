// What goes on at the same time, without a clock: each waits for the other. Backward and ddp's exchanges; steps of
// several ranks of a node, and their exchange with other nodes.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "prunex/comm/communicator.h"
#include "prunex/strategies/gradients/gradients.h"
#include "prunex/strategies/hsadmm/hsadmm.h"

namespace prunex::strategies {
namespace {

/// Something that one thread tells another.
class Signal {
 public:
  void set() {
    const std::lock_guard lock(mutex_);
    set_ = true;
    changed_.notify_all();
  }
  /// Whether it was set; gives up where it never will be.
  bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [this] { return set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

using Heard = std::function<void(const at::Tensor& bucket)>;

/// Two ranks, of which the other one has the same to say.
class Mirror final : public comm::Communicator {
 public:
  explicit Mirror(Heard heard = {}) : Communicator("mirror", 0, 2), heard_(std::move(heard)) {}
  void abort(const std::string&) override {}

 private:
  void do_all_reduce(at::Tensor& tensor, comm::Reduce) override {
    if (heard_) heard_(tensor);
    tensor.mul_(2);
  }
  void do_broadcast(at::Tensor&, int) override {}
  void do_barrier() override {}
  void do_reduce_scatter(at::Tensor& tensor, const std::vector<comm::Range>&) override { tensor.mul_(2); }
  void do_all_gather_parts(at::Tensor&, const std::vector<comm::Range>&) override {}
  void do_all_to_all(at::Tensor&, const at::Tensor&, const std::vector<comm::Range>&) override {
    FAIL() << "all_to_all";
  }

  Heard heard_;
};

/// Two nodes of one rank; `heard` is called with every bucket that leaves for the other node.
comm::Hierarchy hierarchy(Heard heard) {
  comm::Hierarchy ranks{.layout = comm::Layout::even(2, 1)};
  ranks.world = comm::make_solo("world");
  ranks.node = comm::make_solo("node");
  ranks.rail = std::make_unique<Mirror>(std::move(heard));
  ranks.flat = std::make_unique<Mirror>();
  return ranks;
}

Replica replica_of(const std::vector<std::pair<std::string, int64_t>>& sizes) {
  Replica replica;
  for (const auto& [name, size] : sizes) {
    replica.weights.params.insert(name, at::arange(1, size + 1, at::kFloat).set_requires_grad(true));
  }
  return replica;
}

/// Every parameter is a bucket of its own.
std::unique_ptr<Strategy> ddp(Replica& replica, comm::Hierarchy& ranks) {
  return make_ddp(replica, ranks, {.reporting = {1, 1}, .buckets = {.first = 4, .others = 4}});
}

// Backward does not reach the first layer before the last layer's bucket has left, and that exchange does not end
// before backward is there: without both at once either gives up.
TEST(Ddp, ABucketTravelsWhileBackwardGoesOn) {
  Signal bucket_left, backward_is_there;
  bool waited_for_backward = true, waited_for_bucket = false;
  comm::Hierarchy ranks = hierarchy([&](const at::Tensor& bucket) {
    if (bucket.numel() != 5) return;  // the last layer
    bucket_left.set();
    waited_for_backward = backward_is_there.wait();
  });
  Replica replica = replica_of({{"first", 3}, {"last", 5}});
  auto& params = replica.weights.params;
  const auto strategy = ddp(replica, ranks);
  const at::Tensor hidden = params["first"].square();
  hidden.register_hook([&](const at::Tensor&) {
    EXPECT_FALSE(params["first"].grad().defined());
    backward_is_there.set();
    waited_for_bucket = bucket_left.wait();
  });
  (hidden.sum() * params["last"].sum()).backward();
  strategy->before_update(replica);
  EXPECT_TRUE(waited_for_bucket) << "nothing left before backward had ended";
  EXPECT_TRUE(waited_for_backward) << "backward stood still during the exchange";
  EXPECT_TRUE(params["first"].grad().equal(2 * 15 * at::arange(1, 4, at::kFloat)));
  EXPECT_TRUE(params["last"].grad().equal(at::full({5}, 14.0f)));
}

// All ranks must exchange the same bucket: whatever the order in which backward makes gradients, the last one goes
// first.
TEST(Ddp, BucketsLeaveFromTheLastParameterOn) {
  std::vector<int64_t> left;
  comm::Hierarchy ranks = hierarchy([&](const at::Tensor& bucket) { left.push_back(bucket.numel()); });
  Replica replica = replica_of({{"first", 3}, {"middle", 4}, {"last", 5}});
  auto& params = replica.weights.params;
  const auto strategy = ddp(replica, ranks);
  (params["last"].square().sum() * params["middle"].sum() * params["first"].sum()).backward();
  strategy->before_update(replica);
  EXPECT_EQ(left, (std::vector<int64_t>{5, 4, 3}));
}

// Whether it was earlier or later does not matter here: every share is one of a step, and they follow each other.
TEST(Ddp, SaysWhichShareOfAStepItsBucketsWaitFor) {
  comm::Hierarchy ranks = hierarchy({});
  Replica replica = replica_of({{"first", 3}, {"middle", 4}, {"last", 5}});
  auto& params = replica.weights.params;
  const auto strategy = make_ddp(replica, ranks, {.reporting = {3, 6}, .buckets = {.first = 4, .others = 4}});
  Exchange exchange;
  for (int step = 1; step <= 6; ++step) {
    (params["last"].square().sum() * params["middle"].sum() * params["first"].sum()).backward();
    strategy->before_update(replica);
    exchange = strategy->after_update(replica, step);
    ASSERT_EQ(exchange.exchanged, step % 3 == 0);
    if (!exchange.exchanged) continue;
    ASSERT_EQ(exchange.buckets.size(), 3);
    double before = 0;
    for (int64_t i = 0; i < 3; ++i) {
      const auto& [bytes, ready] = exchange.buckets[static_cast<size_t>(i)];
      EXPECT_EQ(bytes, 4 * (5 - i));
      EXPECT_GE(ready, before);
      EXPECT_LE(ready, 1);
      before = ready;
    }
    EXPECT_GT(before, 0);
  }
}

// Their buckets leave after the last of them.
TEST(Ddp, DoesNotMeasureStepsOfSeveralBackwards) {
  comm::Hierarchy ranks = hierarchy({});
  Replica replica = replica_of({{"first", 3}, {"last", 5}});
  auto& params = replica.weights.params;
  const auto strategy =
      make_ddp(replica, ranks, {.reporting = {4, 4}, .buckets = {.first = 4, .others = 4, .several_backwards = true}});
  for (int step = 1; step <= 4; ++step) {
    for (int i = 0; i < 2; ++i) (params["last"].square().sum() * params["first"].sum()).backward();
    strategy->before_update(replica);
    EXPECT_TRUE(strategy->after_update(replica, step).buckets.empty()) << step;
  }
}

// What happens between the report before and the first step, such as an evaluation, is no part of it.
TEST(Ddp, DoesNotMeasureTheFirstStepAfterAReport) {
  comm::Hierarchy ranks = hierarchy({});
  Replica replica = replica_of({{"first", 3}, {"last", 5}});
  const auto strategy = make_ddp(replica, ranks, {.reporting = {1, 2}});
  for (int step = 1; step <= 2; ++step) {
    (replica.weights.params["last"].sum() * replica.weights.params["first"].sum()).backward();
    strategy->before_update(replica);
    EXPECT_TRUE(strategy->after_update(replica, step).buckets.empty());
  }
}

// Two nodes of two ranks that are workers. What left after step 4 is not there before step 5 has averaged gradients in
// the node, which does not wait for it: on one of the node's connections either would give up.
TEST(WorkersOfSeveralRanks, StepWhileTheirExchangeTravels) {
  Signal left, averaged_in_node;
  int64_t sent = 0, step = 0;
  bool waited_for_step = false, waited_for_exchange = false;
  comm::Hierarchy ranks{.layout = comm::Layout::even(2, 2)};
  ranks.world = comm::make_solo("world");
  ranks.flat = std::make_unique<Mirror>();
  ranks.rail = std::make_unique<Mirror>([&](const at::Tensor&) {
    if (++sent != 2) return;  // the first exchange is waited for
    left.set();
    waited_for_step = averaged_in_node.wait();
  });
  ranks.node = std::make_unique<Mirror>([&](const at::Tensor&) {
    if (step != 5) return;
    waited_for_exchange = left.wait();
    averaged_in_node.set();
  });
  Replica replica = replica_of({{"first", 3}, {"last", 5}});
  auto& params = replica.weights.params;
  HsadmmOptions options{.after_freeze = AfterFreeze::kAverage, .overlap = 1};
  options.local = {.steps = 2, .total_steps = 8};
  options.consensus.penalty.kappa = 0;
  const auto strategy = make_averaging_in_node(make_hsadmm(replica, ranks, options), replica, ranks, {2, 8}, {});
  for (step = 1; step <= 5; ++step) {
    for (auto& theta : params) theta.value().mutable_grad().reset();
    (params["last"].sum() * params["first"].sum()).backward();
    strategy->before_update(replica);
    EXPECT_EQ(strategy->after_update(replica, step).overlapped, step == 5 ? 1 : 0) << step;
  }
  EXPECT_TRUE(waited_for_exchange) << "nothing had left";
  EXPECT_TRUE(waited_for_step) << "the node's ranks waited for the exchange";
}

}  // namespace
}  // namespace prunex::strategies
