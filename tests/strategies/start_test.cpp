// What strategies ask of replicas as they are made, and loops of one's own around them.
#include "prunex/strategies/start.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>

#include "prunex/comm/connect.h"
#include "prunex/strategies/gradients/gradients.h"
#include "prunex/strategies/scaffold.h"

namespace prunex::strategies {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr Reporting kReporting{.steps = 1, .total_steps = 9};

TensorDict params_of(double value) {
  TensorDict params;
  params.insert("w", at::full({4, 3}, value, at::kFloat).set_requires_grad(true));
  params.insert("b", at::full({4}, value, at::kFloat).set_requires_grad(true));
  return params;
}

Replica replica_of(double value) {
  Replica replica;
  replica.weights.params = params_of(value);
  return replica;
}

ScaffoldOptions scaffold_options(Payload payload) {
  return {.local = {.steps = 1, .total_steps = 9, .learning_rate = [](int64_t) { return 0.1; }},
          .exchange = {.payload = payload}};
}

TEST(Start, RefusesTypesThatSumsLosePrecisionIn) {
  TensorDict params = params_of(1);
  params.insert("half", at::ones({2}, at::kHalf));
  EXPECT_THAT([&] { expect_usable(params); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("parameter half: got Half, wanted Float or Double")));
}

TEST(Start, RefusesATensorUnderTwoNames) {
  TensorDict params = params_of(1);
  params.insert("tied", params["w"]);
  EXPECT_THAT([&] { expect_usable(params); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("parameters w and tied are one tensor")));
}

TEST(Start, RefusesParametersOfDifferentTypes) {
  TensorDict params = params_of(1);
  params.insert("wide", at::ones({2}, at::kDouble));
  EXPECT_THAT([&] { expect_usable(params); },
              ThrowsMessage<std::invalid_argument>(
                  HasSubstr("parameter wide: got Double, wanted Float, which w is: they are exchanged together")));
}

TEST(Start, RefusesParametersThatRoundedMessagesCannotCarry) {
  TensorDict params;
  params.insert("wide", at::ones({2}, at::kDouble));
  EXPECT_NO_THROW(expect_usable(params));
  const auto why = ThrowsMessage<std::invalid_argument>(
      HasSubstr("`payload`: got bf16; parameter wide is of float64, which goes in fp32 alone"));
  EXPECT_THAT([&] { expect_usable(params, Payload::kBf16); }, why);
  comm::run_ranks(1, 2, [&](comm::Hierarchy& ranks) {
    Replica replica;
    replica.weights.params.insert("wide", at::ones({2}, at::kDouble).set_requires_grad(true));
    EXPECT_THAT([&] { make_ddp(replica, ranks, {.reporting = kReporting, .exchange = {.payload = Payload::kBf16}}); },
                why);
    EXPECT_THAT([&] { make_scaffold(replica, ranks, scaffold_options(Payload::kBf16)); }, why);
  });
}

TEST(Start, RefusesRowsThatDoNotLieTogether) {
  TensorDict params = params_of(1);
  params.insert("filters", at::ones({2, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast));
  params.insert("row", at::ones({3, 1}).t());
  EXPECT_NO_THROW(expect_rows(params));
  const auto refused = [](const char* name, const at::Tensor& theta) {
    comm::run_ranks(1, 2, [&](comm::Hierarchy& ranks) {
      Replica replica = replica_of(1);
      replica.weights.params.insert(name, theta);
      EXPECT_THAT([&] { make_scaffold(replica, ranks, scaffold_options(Payload::kFp32)); },
                  ThrowsMessage<std::invalid_argument>(
                      HasSubstr(std::string("parameter ") + name + ": its rows do not lie behind each other")));
    });
  };
  refused("transposed", at::ones({4, 3}).t());
  refused("sliced", at::ones({4, 3}).slice(1, 0, 2));
}

TEST(Start, OfScaffoldRefusesPayloadsThatItsVariatesDoNotBear) {
  comm::run_ranks(1, 1, [](comm::Hierarchy& ranks) {
    Replica replica = replica_of(1);
    EXPECT_THAT([&] { make_scaffold(replica, ranks, scaffold_options(Payload::kInt8)); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("`payload`: got int8, scaffold has fp32, bf16")));
  });
}

TEST(Start, OfScaffoldRefusesATensorUnderTwoNames) {
  comm::run_ranks(1, 2, [](comm::Hierarchy& ranks) {
    Replica replica = replica_of(1);
    replica.weights.params.insert("tied", replica.weights.params["w"]);
    EXPECT_THAT([&] { make_scaffold(replica, ranks, scaffold_options(Payload::kFp32)); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("parameters w and tied are one tensor")));
  });
}

TEST(Start, GivesAllRanksTheFirstOnesValues) {
  comm::run_ranks(2, 2, [](comm::Hierarchy& ranks) {
    Weights weights{params_of(ranks.layout.rank + 1), TensorDict()};
    weights.buffers.insert("n", at::full({}, ranks.layout.rank, at::kLong));
    start_equal(weights, *ranks.world);
    EXPECT_TRUE(weights.params["w"].equal(at::ones({4, 3})));
    EXPECT_EQ(weights.buffers["n"].item<int64_t>(), 0);
  });
}

TEST(Start, RefusesOtherLayoutsOnAllRanks) {
  comm::run_ranks(2, 2, [](comm::Hierarchy& ranks) {
    Weights weights{params_of(ranks.layout.rank + 1), TensorDict()};
    if (ranks.layout.rank == 2) weights.params["w"] = at::full({3, 4}, 3, at::kFloat).t();
    EXPECT_THAT([&] { start_equal(weights, *ranks.world); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("differ in names, sizes, types or memory layout")));
    EXPECT_EQ(weights.params["w"].sum().item<double>(), 12 * (ranks.layout.rank + 1)) << "untouched";
  });
}

TEST(Start, OfScaffoldLeavesBuffersOfOtherTypesToEachRank) {
  comm::run_ranks(2, 1, [](comm::Hierarchy& ranks) {
    Replica replica = replica_of(1);
    replica.weights.buffers.insert("mean", at::ones({2}, at::kFloat));
    replica.weights.buffers.insert("wide", at::ones({2}, at::kDouble));
    const auto strategy = make_scaffold(replica, ranks, scaffold_options(Payload::kFp32));
    for (auto& buffer : replica.weights.buffers) buffer.value().mul_(ranks.layout.rank + 1);
    for (auto& theta : replica.weights.params) theta.value().mutable_grad() = at::ones_like(theta.value());
    strategy->before_update(replica);
    strategy->after_update(replica, 1);
    EXPECT_TRUE(replica.weights.buffers["mean"].equal(at::full({2}, 1.5, at::kFloat)));
    EXPECT_TRUE(replica.weights.buffers["wide"].equal(at::full({2}, ranks.layout.rank + 1, at::kDouble)));
  });
}

// Loops around ddp. A rank's loss is `scale` (rank + 1) (sum of w and b): gradients average to 1.5 scale on two ranks.
class DdpLoop : public testing::Test {
 protected:
  static void on_two_ranks(const std::function<void(comm::Hierarchy&, Replica&, Strategy&)>& loop,
                           bool several_backwards = false) {
    const DdpOptions options{.reporting = kReporting,
                             .buckets = {.first = 4, .others = 4, .several_backwards = several_backwards}};
    comm::run_ranks(2, 1, [&](comm::Hierarchy& ranks) {
      Replica replica = replica_of(1);
      const auto strategy = make_ddp(replica, ranks, options);
      loop(ranks, replica, *strategy);
    });
  }

  static void backward(const comm::Hierarchy& ranks, const Replica& replica, double scale = 1) {
    at::Tensor loss = at::zeros({});
    for (const auto& theta : replica.weights.params) loss = loss + theta.value().sum();
    (loss * scale * (ranks.layout.rank + 1)).backward();
  }

  static void expect_gradients(const Replica& replica, double value) {
    for (const auto& theta : replica.weights.params) {
      EXPECT_TRUE(theta.value().grad().equal(at::full_like(theta.value().detach(), value))) << theta.value().grad();
    }
  }

  static void forget_gradients(Replica& replica) {
    for (auto& theta : replica.weights.params) theta.value().mutable_grad().reset();
  }

  /// `forget`: what the loop does with a parameter's gradient after a step.
  static void expect_sums_of_two_backwards(const std::function<void(const at::Tensor& theta)>& forget) {
    on_two_ranks(
        [&](comm::Hierarchy& ranks, Replica& replica, Strategy& strategy) {
          for (int64_t step = 1; step <= 3; ++step) {
            backward(ranks, replica);
            backward(ranks, replica, 10);
            strategy.before_update(replica);
            expect_gradients(replica, 16.5);
            strategy.after_update(replica, step);
            for (const auto& theta : replica.weights.params) forget(theta.value());
          }
        },
        true);
  }
};

TEST_F(DdpLoop, SeveralBackwardsAddUp) {
  expect_sums_of_two_backwards([](const at::Tensor& theta) { theta.mutable_grad().reset(); });
}

TEST_F(DdpLoop, ADiscardedBackwardLeavesNothing) {
  on_two_ranks(
      [](comm::Hierarchy& ranks, Replica& replica, Strategy& strategy) {
        backward(ranks, replica, 100);
        forget_gradients(replica);
        backward(ranks, replica);
        strategy.before_update(replica);
        expect_gradients(replica, 1.5);
      },
      true);
}

// Whatever each rank's backwards reach: all ranks average w and b once.
TEST_F(DdpLoop, RanksMayUseOtherParametersInEachBackward) {
  on_two_ranks(
      [](comm::Hierarchy& ranks, Replica& replica, Strategy& strategy) {
        auto& params = replica.weights.params;
        for (int64_t step = 1; step <= 3; ++step) {
          for (const double scale : {1, 2}) {
            (params["w"].sum() * scale).backward();
            if (ranks.layout.rank == 0) (params["b"].sum() * scale).backward();
          }
          strategy.before_update(replica);
          EXPECT_TRUE(params["w"].grad().equal(at::full_like(params["w"].detach(), 3))) << params["w"].grad();
          EXPECT_TRUE(params["b"].grad().equal(at::full_like(params["b"].detach(), 1.5))) << params["b"].grad();
          strategy.after_update(replica, step);
          forget_gradients(replica);
        }
      },
      true);
}

TEST_F(DdpLoop, ASecondBackwardThatWasNotAnnouncedIsAnError) {
  on_two_ranks([](comm::Hierarchy& ranks, Replica& replica, Strategy&) {
    backward(ranks, replica);
    EXPECT_THAT(
        [&] { backward(ranks, replica); },
        ThrowsMessage<std::logic_error>(HasSubstr("several backwards per step want `buckets.several_backwards`")));
  });
}

TEST_F(DdpLoop, GradientsMayBeZeroedInPlace) {
  expect_sums_of_two_backwards([](const at::Tensor& theta) {
    theta.mutable_grad().detach_().zero_();  // as torch::optim::Optimizer::zero_grad() does
  });
}

TEST_F(DdpLoop, AForgottenHookIsAnError) {
  on_two_ranks([](comm::Hierarchy& ranks, Replica& replica, Strategy& strategy) {
    backward(ranks, replica);
    EXPECT_THAT(
        [&] { strategy.after_update(replica, 1); },
        ThrowsMessage<std::logic_error>(HasSubstr("wanted before_update() between backward and the optimizer")));
  });
}

TEST_F(DdpLoop, ConnectionsServeOneAtATime) {
  on_two_ranks([](comm::Hierarchy& ranks, Replica& replica, Strategy&) {
    EXPECT_THAT([&] { make_ddp(replica, ranks, {.reporting = kReporting}); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("wanted one at a time on the same connections")));
  });
}

TEST(GradientStrategies, LeaveWhatIsFrozenWithoutAGradient) {
  comm::run_ranks(2, 1, [](comm::Hierarchy& ranks) {
    const auto check = [&](const std::function<std::unique_ptr<Strategy>(Replica&)>& make) {
      Replica replica = replica_of(1);
      replica.weights.params["w"].set_requires_grad(false);
      const auto strategy = make(replica);
      replica.weights.params["b"].sum().backward();
      strategy->before_update(replica);
      EXPECT_FALSE(replica.weights.params["w"].grad().defined());
      EXPECT_TRUE(replica.weights.params["b"].grad().defined());
    };
    check([&](Replica& replica) { return make_ddp(replica, ranks, {.reporting = kReporting}); });
    check([&](Replica& replica) { return make_top_k(replica, ranks, {.reporting = kReporting}); });
    check([&](Replica& replica) { return make_powersgd(replica, ranks, {.reporting = kReporting}); });
  });
}

}  // namespace
}  // namespace prunex::strategies
