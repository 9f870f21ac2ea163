// Runs too short, and roundings too coarse, for what is to be pruned: refused or doubted before they start.
#include "prunex/train/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "prunex/train/strategy_choice.h"

namespace prunex::train {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
using testing::ThrowsMessage;

std::vector<sparsity::Group> groups(double keep = 0.5) {
  return {{.name = "a", .size = 16, .keep = keep}, {.name = "b", .size = 64, .keep = keep}};
}

std::vector<std::string> doubts(const TrainOptions& options, int64_t images = 10'000) {
  return check_plan(options, run_length(options, images), groups());
}

TrainOptions with_exchanges(int64_t exchanges) {
  TrainOptions options;
  options.exchanges = exchanges;
  return options;
}

void refused(const TrainOptions& options, const std::string& option, const std::string& wanted) {
  EXPECT_THAT([&] { doubts(options); },
              ThrowsMessage<std::invalid_argument>(AllOf(StartsWith(option + ": got "), HasSubstr(wanted))));
}

TEST(PlanCheck, TheAutomaticPlanLeavesAFifthOfTheRunAfterTheCutFromFourExchangesOn) {
  for (int64_t exchanges = 4; exchanges <= 40; ++exchanges) {
    const TrainOptions options = with_exchanges(exchanges);
    EXPECT_THAT(doubts(options), IsEmpty()) << exchanges;
    // the cut comes in the exchange after the last one with open masks
    EXPECT_GE(5 * (exchanges - run_length(options, 10'000).freeze_after - 1), exchanges) << exchanges;
  }
}

TEST(PlanCheck, ARunOfFewExchangesIsToldHowToHaveMore) {
  for (int64_t exchanges = 1; exchanges <= 3; ++exchanges) {
    EXPECT_THAT(doubts(with_exchanges(exchanges)),
                ElementsAre(AllOf(StartsWith(std::to_string(exchanges) + " exchange"),
                                  HasSubstr("masks need at least 4"), HasSubstr("try `exchanges` 8"))));
  }
  // 2,000 images: 15 steps per epoch, 150 in ten epochs, 3 exchanges; 150 / 8 = 18
  EXPECT_THAT(doubts({}, 2000), ElementsAre(AllOf(StartsWith("3 exchanges: "), HasSubstr("try `local_steps` 18"))));
  TrainOptions options;
  options.local_steps = 18;
  EXPECT_THAT(doubts(options, 2000), IsEmpty());
  options.epochs = 0.2;  // 3 steps
  EXPECT_THAT(doubts(options, 2000), ElementsAre(HasSubstr("try more `epochs`")));
}

TEST(PlanCheck, NothingIsSaidWhereNothingIsPruned) {
  TrainOptions options = with_exchanges(1);
  options.prune_start = 20;
  EXPECT_THAT(check_plan(options, run_length(options, 10'000), {}), IsEmpty());
}

TEST(PlanCheck, ExchangesThatNeverComeAreRefused) {
  TrainOptions options = with_exchanges(16);
  options.prune_start = 17;
  refused(options, "`prune_start`", "at most 16");
  options = with_exchanges(16);
  options.prune_end = 17;
  refused(options, "`prune_end`", "at most 16");
  options = with_exchanges(16);
  options.freeze_after = 17;
  refused(options, "`freeze_after`", "at most 16, the last exchange of this run, or never");
  options.freeze_after = strategies::kNever;
  EXPECT_THAT(doubts(options), IsEmpty());
  options.local_after = 16;
  refused(options, "`local_after`", "less than 16");
}

TEST(PlanCheck, StableMasksAreWaitedForWhereOthersFreezeLater) {
  TrainOptions options = with_exchanges(16);
  options.masks.freeze_when_stable = 2;
  refused(options, "`freeze_when_stable`", "masks freeze after exchange 8 in any case");
  options.freeze_after = 12;
  EXPECT_NO_THROW(doubts(options));
  options.freeze_after = strategies::kNever;
  EXPECT_NO_THROW(doubts(options));
}

TEST(PlanCheck, MasksDoNotEndBeforeWeightsAreExchanged) {
  TrainOptions options = with_exchanges(20);
  options.local_after = 10;
  EXPECT_THAT(doubts(options), IsEmpty());
  options.prune_end = 11;
  refused(options, "`prune_end`", "12 or more beside `local_after` 10");
  options.prune_end = kAutomatic;
  options.freeze_after = 5;
  refused(options, "`freeze_after`", "12 or more beside `local_after` 10");
}

TEST(PlanCheck, NothingWaitsForMasksThatAreFinalAtTheEnd) {
  const auto refused_with = [](const TrainOptions& options, const std::string& message) {
    EXPECT_THAT([&] { doubts(options); }, ThrowsMessage<std::invalid_argument>(message));
  };
  TrainOptions options = with_exchanges(20);
  options.freeze_after = 20;
  options.ema = 0.999;
  refused_with(options,
               "`ema`: begins when masks are final, after exchange 20, and this run has 20 exchanges: wanted a smaller "
               "`freeze_after`");
  options = with_exchanges(8);
  options.strategy = "one_shot";
  options.prune_at = 0.95;
  options.overlap = 5;
  refused_with(options,
               "`overlap`: got 5, but the first exchange with final masks, 9, is waited for, and so is the last one, "
               "8: wanted some between them");
  options.prune_at = 0.8;  // that of 7 is waited for, and so is that of 8
  EXPECT_ANY_THROW(doubts(options));
  options.prune_at = 0.6;
  EXPECT_NO_THROW(doubts(options));
  options = with_exchanges(20);
  options.overlap = 2;
  options.prune_end = 10;
  options.freeze_after = 19;
  EXPECT_ANY_THROW(doubts(options));
  options.masks.freeze_when_stable = 2;  // from exchange 10 on
  EXPECT_NO_THROW(doubts(options));
}

TEST(PlanCheck, SoIsWhatNeverBeginsWithoutMasks) {
  const auto refused_whole = [](TrainOptions options, const std::string& message) {
    options.exchanges = 8;
    options.groups = "none";
    EXPECT_THAT([&] { check_plan(options, run_length(options, 10'000), {}); },
                ThrowsMessage<std::invalid_argument>(HasSubstr(message)));
  };
  refused_whole({.strategy = "diloco", .local_after = 8}, "`local_after`: got 8, wanted less than 8");
  refused_whole({.strategy = "diloco", .outer_from = 9}, "`outer_from`: got 9, wanted at most 8");
  refused_whole({.strategy = "diloco", .local_after = 6, .overlap = 2},
                "`overlap`: got 2, but the first exchange of weights, 7, is waited for");
  TrainOptions options{.strategy = "powersgd"};
  options.powersgd.start_after = 400;
  refused_whole(options, "`powersgd_start`: got 400, wanted less than 400");
  options.strategy = "ddp";
  options.pruning.below = 1e-4;
  options.pruning.every = 9;
  refused_whole(options, "`prune_every`: got 9, wanted at most 8");
}

TEST(PlanCheck, TheAutomaticPlanBeginsWhereWeightsAreExchanged) {
  TrainOptions options = with_exchanges(20);
  options.local_after = 10;
  const RunLength length = run_length(options, 10'000);
  EXPECT_EQ(length.prune_start, 12);
  EXPECT_EQ(length.prune_end, 15);
  EXPECT_EQ(length.freeze_after, 15);
  options.prune_start = 11;
  EXPECT_EQ(run_length(options, 10'000).prune_start, 11);
  options.prune_start = 2;
  refused(options, "`prune_start`", "got 2, wanted 11 or more beside `local_after` 10");
  options = with_exchanges(20);
  options.strategy = "one_shot";
  options.local_after = 10;
  options.prune_at = 0.45;
  refused(options, "`prune_at`", "got 0.45, which is after exchange 9 of 20: wanted one after the 10 of `local_after`");
  options.prune_at = 0.5;
  EXPECT_NO_THROW(doubts(options));
}

TEST(PlanCheck, ACutRightBeforeTheEndIsDoubtedByTheOptionThatDecidesIt) {
  TrainOptions options = with_exchanges(16);
  options.freeze_after = 15;  // the cut comes in the last exchange
  EXPECT_THAT(doubts(options), ElementsAre(StartsWith("`freeze_after`: 0 of 16 exchanges follow the cut")));
  options.freeze_after = 11;  // four follow: a quarter
  EXPECT_THAT(doubts(options), IsEmpty());
  options = with_exchanges(16);
  options.prune_end = 13;
  EXPECT_THAT(doubts(options), ElementsAre(StartsWith("`prune_end`: 2 of 16 exchanges follow the cut")));
  options = with_exchanges(16);
  options.strategy = "one_shot";
  EXPECT_THAT(doubts(options), IsEmpty());  // 0.6 of the run: the cut is in exchange 11
  options.prune_at = 0.9;
  EXPECT_THAT(doubts(options), ElementsAre(StartsWith("`prune_at`: 1 of 16 exchanges follow the cut")));
}

TEST(PlanCheck, ACutToATargetAtTheEndIsDoubted) {
  TrainOptions options = with_exchanges(1);
  options.groups = "none";
  options.pruning.target = "ratio=0.5";
  const auto check = [&] { return check_plan(options, run_length(options, 10'000), {}); };
  EXPECT_THAT(check(), ElementsAre(StartsWith("`prune_to`: the last cut comes at the end of the run")));
  options.exchanges = 8;
  EXPECT_THAT(check(), IsEmpty());
}

TEST(PlanCheck, ACutOfABuiltInNetworkThatNobodyHasTrainedIsDoubted) {
  TrainOptions options;
  options.groups = "none";
  options.pruning.target = "macs=0.5";
  options.model = "resnet20";
  options.epochs = 0;
  options.finetune.epochs = 10;
  const auto check = [&] { return check_plan(options, run_length(options, 10'000), {}); };
  EXPECT_THAT(check(), ElementsAre(StartsWith("`prune_to`: the first cut comes before resnet20 is trained")));
  options.weights = "w.safetensors";
  EXPECT_THAT(check(), IsEmpty());
  options.weights = "";
  options.model = "net.pt2";
  EXPECT_THAT(check(), IsEmpty());
  options.model = "resnet20";
  options.epochs = 1;
  EXPECT_THAT(check(), IsEmpty());
}

TEST(PlanCheck, RoundingThatLeavesNothingToPruneIsRefusedOrDoubted) {
  TrainOptions options = with_exchanges(16);
  const auto check = [&](double keep) { return check_plan(options, run_length(options, 10'000), groups(keep)); };
  EXPECT_THAT(check(1), ElementsAre(AllOf(StartsWith("`keep`: got 0.5"), HasSubstr("try `round_to` 1"))));
  options.round_to = 128;
  EXPECT_THAT([&] { check(1); }, ThrowsMessage<std::invalid_argument>(
                                     AllOf(StartsWith("`round_to`: got 128, wanted less"), HasSubstr("has 64 units"))));
  options.keep = 1;  // everything is what was asked
  EXPECT_THAT(check(1), IsEmpty());
}

}  // namespace
}  // namespace prunex::train
