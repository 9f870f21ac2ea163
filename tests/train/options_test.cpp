// What the options may be, and what a refusal says.
#include "prunex/train/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

namespace prunex::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using testing::ThrowsMessage;

const double kNan = std::nan(""), kInfinity = std::numeric_limits<double>::infinity();

/// Sets one field of the defaults and expects a line that begins with its option.
template <class T, class U>
void refused(T TrainOptions::*field, std::initializer_list<U> values, const std::string& option) {
  for (const U& value : values) {
    TrainOptions options;
    options.*field = value;
    EXPECT_THAT([&] { validate(options); },
                ThrowsMessage<std::invalid_argument>(
                    AllOf(StartsWith(option + ": got "), HasSubstr(", wanted "), Not(HasSubstr("\n")))))
        << testing::PrintToString(value);
  }
}

TEST(Options, HaveValidDefaults) {
  EXPECT_NO_THROW(validate({}));
}

TEST(Options, RefuseNumbersOutOfRange) {
  refused(&TrainOptions::nodes, {0, -1}, "`nodes`");
  using Numbers = std::vector<int>;
  refused(&TrainOptions::ranks_per_node, {Numbers{0}, Numbers{-1}, Numbers{1, 1}}, "`ranks_per_node`");
  refused(&TrainOptions::sites, {0, -1, 2}, "`sites`");
  refused(&TrainOptions::threads, {0}, "`threads`");
  refused(&TrainOptions::width, {0.0, -1.0, kNan}, "`width`");
  refused(&TrainOptions::epochs, {0.0, -1.0, kNan, kInfinity}, "`epochs`");
  refused(&TrainOptions::exchanges, {-1}, "`exchanges`");
  refused(&TrainOptions::local_steps, {0, -5}, "`local_steps`");
  refused(&TrainOptions::batch_size, {0, -5}, "`batch_size`");
  refused(&TrainOptions::learning_rate, {0.0, -0.1, kNan, kInfinity}, "`lr`");
  refused(&TrainOptions::warmup_epochs, {-1.0, kNan}, "`warmup_epochs`");
  refused(&TrainOptions::momentum, {1.0, -0.1, kNan}, "`momentum`");
  refused(&TrainOptions::weight_decay, {-0.1, kNan, kInfinity}, "`weight_decay`");
  refused(&TrainOptions::beta1, {1.0, -0.1}, "`beta1`");
  refused(&TrainOptions::beta2, {1.0, -0.1}, "`beta2`");
  refused(&TrainOptions::eps, {0.0, -1.0}, "`eps`");
  refused(&TrainOptions::clip_norm, {-1.0, kNan}, "`clip_grad_norm`");
  refused(&TrainOptions::warmup_steps, {-1}, "`warmup_steps`");
  refused(&TrainOptions::milestone_factor, {0.0}, "`lr_gamma`");
  refused(&TrainOptions::label_smoothing, {-0.1, 1.1}, "`label_smoothing`");
  refused(&TrainOptions::mix, {MixOptions{.mixup = -1}, MixOptions{.mixup = 1e-9}}, "`mixup`");
  refused(&TrainOptions::mix, {MixOptions{.cutmix = 1e9}}, "`cutmix`");
  refused(&TrainOptions::ema, {1.0, -0.1}, "`ema`");
  refused(&TrainOptions::milestones, {std::vector<double>{2, 1}, std::vector<double>{1, 1}, std::vector<double>{0, 1}},
          "`lr_milestones`");
  refused(&TrainOptions::schedule, {LearningRateSchedule::kMilestones}, "`lr_milestones`");
  refused(&TrainOptions::keep, {0.0, 1.5, -1.0, kNan}, "`keep`");
  refused(&TrainOptions::prune_start, {0}, "`prune_start`");
  refused(&TrainOptions::prune_end, {1, -2}, "`prune_end`");  // before the default start
  refused(&TrainOptions::freeze_after, {-2}, "`freeze_after`");
  refused(&TrainOptions::eval_every, {-1}, "`eval_every`");
  refused(&TrainOptions::strategy, {"magic"}, "`strategy`");
  refused(&TrainOptions::outer_from, {-1}, "`outer_from`");
  refused(&TrainOptions::outer_momentum, {-0.1, 1.0}, "`outer_momentum`");
}

TEST(Options, GiveEveryNodeItsRanks) {
  TrainOptions options;
  options.nodes = 4;
  options.ranks_per_node = {3};
  EXPECT_EQ(shape_of(options).node_sizes, (std::vector<int>{3, 3, 3, 3}));
  options.ranks_per_node = {3, 1, 2, 1};
  options.sites = 2;
  EXPECT_NO_THROW(validate(options));
  EXPECT_EQ(shape_of(options).node_sizes, (std::vector<int>{3, 1, 2, 1}));
  EXPECT_EQ(shape_of(options).sites, 2);
}

TEST(Options, RefuseNumbersOfTheStrategyOutOfRange) {
  const auto refused_after = [](auto change, const std::string& option) {
    TrainOptions options;
    change(options);
    EXPECT_THAT([&] { validate(options); }, ThrowsMessage<std::invalid_argument>(StartsWith(option + ": got ")));
  };
  refused_after([](TrainOptions& o) { o.consensus.penalty.kappa = -1; }, "`kappa`");
  refused_after([](TrainOptions& o) { o.consensus.penalty.rho1 = 0; }, "`rho1`");
  refused_after([](TrainOptions& o) { o.outer.rate = 0; }, "`outer_lr`");
  refused_after([](TrainOptions& o) { o.masks.freeze_when_stable = -1; }, "`freeze_when_stable`");
  refused_after([](TrainOptions& o) { o.consensus.tolerance = std::nan(""); }, "`tolerance`");
}

TEST(Options, OfATrainingWithoutStepsAreRefused) {
  TrainOptions options;
  options.strategy = "local_sgd";
  options.epochs = 0;
  options.pruning.target = "ratio=0.5";
  options.finetune.epochs = 1;
  EXPECT_NO_THROW(validate(options));
  const auto refused_with = [&](const std::function<void(TrainOptions&)>& change, const char* option) {
    TrainOptions changed = options;
    change(changed);
    EXPECT_THAT([&] { validate(changed); },
                testing::ThrowsMessage<std::invalid_argument>(testing::StartsWith(std::string(option) + ": is of")));
  };
  refused_with([](TrainOptions& o) { o.warmup_epochs = 1; }, "`warmup_epochs`");
  refused_with([](TrainOptions& o) { o.warmup_steps = 1; }, "`warmup_steps`");
  refused_with([](TrainOptions& o) { o.sparse.penalty = "growing"; }, "`sparse` without `sparse_epochs`");
}

TEST(Options, NeedEpochsOnlyWithoutExchanges) {
  TrainOptions options;
  options.epochs = 0;
  options.exchanges = 3;
  EXPECT_NO_THROW(validate(options));
}

}  // namespace
}  // namespace prunex::train
