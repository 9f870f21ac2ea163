// The length of a run and its learning rates, from the rules of the command line's documentation.
#include "prunex/train/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <vector>

namespace prunex::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

TrainOptions two_by_two() {
  TrainOptions options;
  options.nodes = 2;
  options.ranks_per_node = {2};
  options.batch_size = 32;
  options.local_steps = 39;
  return options;
}

TEST(RunLength, OfTenThousandImagesOnFourRanksIsTwentyExchanges) {
  // floor(10000 / 128) = 78 steps per epoch, 780 in ten epochs, 20 x 39
  const RunLength length = run_length(two_by_two(), 10000);
  EXPECT_EQ(length.steps_per_epoch, 78);
  EXPECT_EQ(length.steps, 780);
  EXPECT_EQ(length.exchanges, 20);
  EXPECT_EQ(length.prune_start, 2);
  EXPECT_EQ(length.prune_end, 10);
  EXPECT_EQ(length.freeze_after, 10);
}

TEST(RunLength, MayEndInAShortExchange) {
  TrainOptions options = two_by_two();
  options.local_steps = 50;
  EXPECT_EQ(run_length(options, 10000).exchanges, 16);  // 15 of 50 steps, one of 30
  EXPECT_EQ(run_length(options, 10000).steps, 780);
  options.epochs = 0.5;
  EXPECT_EQ(run_length(options, 10000).steps, 39);
  EXPECT_EQ(run_length(options, 10000).exchanges, 1);
  options.epochs = 1e-6;  // at least one step
  EXPECT_EQ(run_length(options, 10000).steps, 1);
}

TEST(RunLength, IsAWholeNumberOfExchangesIfThatIsAsked) {
  TrainOptions options = two_by_two();
  options.exchanges = 3;
  EXPECT_EQ(run_length(options, 128).steps, 3 * 39);
  EXPECT_EQ(run_length(options, 128).exchanges, 3);
}

TEST(RunLength, DecidesWhenToPruneUnlessTold) {
  TrainOptions options = two_by_two();
  options.exchanges = 5;
  EXPECT_EQ(run_length(options, 128).prune_end, 2);
  options.prune_start = 4;  // the ramp may not end before it starts
  EXPECT_EQ(run_length(options, 128).prune_end, 4);
  options.prune_end = 5;
  EXPECT_EQ(run_length(options, 128).freeze_after, 5);
  options.freeze_after = 3;
  EXPECT_EQ(run_length(options, 128).prune_end, 5);
  EXPECT_EQ(run_length(options, 128).freeze_after, 3);
  options.freeze_after = strategies::kNever;
  EXPECT_EQ(run_length(options, 128).freeze_after, strategies::kNever);
}

TEST(RunLength, RefusesASetSmallerThanOneStep) {
  EXPECT_EQ(run_length(two_by_two(), 128).steps_per_epoch, 1);
  EXPECT_THAT([] { run_length(two_by_two(), 127); },
              ThrowsMessage<std::invalid_argument>(
                  AllOf(HasSubstr("`batch_size`: got 32, wanted at most 31"), HasSubstr("has 127"))));
}

std::vector<double> rates(TrainOptions options, int64_t steps, int64_t steps_per_epoch = 10) {
  options.epochs = static_cast<double>(steps) / static_cast<double>(steps_per_epoch);
  const RunLength length = run_length(options, steps_per_epoch * options.batch_size);
  EXPECT_EQ(length.steps, steps);
  std::vector<double> values;
  for (int64_t step = 1; step <= steps; ++step) values.push_back(learning_rate_at(length.phase_of(step), step));
  return values;
}

void expect_rates(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-15) << "step " << i + 1;
}

TEST(LearningRate, FollowsHalfACosine) {
  TrainOptions options;
  options.learning_rate = 0.2;
  const double diagonal = std::sqrt(0.5);  // cos(pi / 4)
  expect_rates(rates(options, 4), {0.2, 0.1 * (1 + diagonal), 0.1, 0.1 * (1 - diagonal)});
}

TEST(LearningRate, FallsToATenthAfterHalfAndAgainAfterThreeQuarters) {
  TrainOptions options;
  options.schedule = LearningRateSchedule::kStep;
  expect_rates(rates(options, 8), {0.1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.001, 0.001});
}

TEST(LearningRate, MayBeConstant) {
  TrainOptions options;
  options.schedule = LearningRateSchedule::kConstant;
  expect_rates(rates(options, 3), {0.1, 0.1, 0.1});
}

TEST(LearningRate, WarmsUpInALine) {
  TrainOptions options;
  options.learning_rate = 1;
  options.warmup_epochs = 0.4;  // 4 of 10 steps
  options.schedule = LearningRateSchedule::kStep;
  expect_rates(rates(options, 12), {0.2, 0.4, 0.6, 0.8, 1, 1, 1, 1, 0.1, 0.1, 0.01, 0.01});
}

TEST(LearningRate, WarmsUpInSteps) {
  TrainOptions options;
  options.learning_rate = 1;
  options.warmup_steps = 4;
  options.schedule = LearningRateSchedule::kConstant;
  expect_rates(rates(options, 6), {0.2, 0.4, 0.6, 0.8, 1, 1});
  options.warmup_steps = 6;
  EXPECT_THAT([&] { rates(options, 6); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("`warmup_steps`: got 6 steps of warm-up, the run has 6")));
}

/// torch.optim.lr_scheduler.MultiStepLR([1, 2], gamma=0.5), stepped after every epoch of two steps.
TEST(LearningRate, FallsAtMilestones) {
  TrainOptions options;
  options.schedule = LearningRateSchedule::kMilestones;
  options.milestones = {1, 2};
  options.milestone_factor = 0.5;
  expect_rates(rates(options, 6, 2), {0.1, 0.1, 0.05, 0.05, 0.025, 0.025});
  EXPECT_THAT([&] { rates(options, 4, 2); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("`lr_milestones`: got 2 epochs")));
}

TEST(LearningRate, OfLaterPhasesIsConstantUnlessToldWhereTheTrainingHasMilestones) {
  TrainOptions options;
  options.schedule = LearningRateSchedule::kMilestones;
  options.milestones = {1};
  options.epochs = 2;
  options.finetune.epochs = 1;
  const RunLength length = run_length(options, 2 * options.batch_size);
  EXPECT_EQ(learning_rate_at(length.phase_of(4), 4), 0.1 * 0.1);
  EXPECT_EQ(learning_rate_at(length.phase_of(6), 6), 0.1);
}

TEST(LearningRate, IsWhatIsUsualForTheOptimizerUnlessTold) {
  TrainOptions options;
  options.schedule = LearningRateSchedule::kConstant;
  options.optimizer = Optimizer::kAdamW;
  expect_rates(rates(options, 1), {0.001});
  options.learning_rate = 0.3;
  expect_rates(rates(options, 1), {0.3});
}

TEST(LearningRate, RefusesAWarmUpThatNeverEnds) {
  TrainOptions options;
  options.warmup_epochs = 1;
  EXPECT_EQ(rates(options, 11).back(), 0.1);
  EXPECT_THAT([&] { rates(options, 10); }, ThrowsMessage<std::invalid_argument>(HasSubstr("`warmup_epochs`")));
}

}  // namespace
}  // namespace prunex::train
