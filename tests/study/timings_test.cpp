// Expected values: written by hand from docs/report.md, "Comparisons", and docs/options.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "study/comparison.h"
#include "tests/study/comparison_files.h"

namespace prunex::study {
namespace {

using testing::ElementsAre;
using testing::Pair;
using testing::SizeIs;
using tests::Scratch;

TEST(Timings, AreTheFirstSeedsCutShort) {
  const Scratch scratch;
  const auto runs = jobs_of(read(scratch, kFile), [](const NamedRun&) { return 0.1; });
  const auto timings = timings_of(first_seeds_of(runs), 10);
  std::set<std::string> names;
  for (const auto& run : runs) names.insert(run.name);
  ASSERT_THAT(timings, SizeIs(names.size()));
  EXPECT_LT(timings.size(), runs.size());
  for (const auto& timing : timings) {
    const auto run = std::find_if(runs.begin(), runs.end(), [&](const Job& job) { return job.name == timing.name; });
    EXPECT_EQ(timing.seed, run->seed);
    EXPECT_EQ(timing.directory, timing.name + "/timing");
    OptionValues options = run->options;
    for (const char* off : {"eval-every", "checkpoint-every"}) options[off] = "0";
    options.erase("epochs");
    options["exchanges"] = "10";
    EXPECT_EQ(timing.options, options);
  }
}

TEST(Timings, ShortenWhatCountsExchanges) {
  const Job run{.name = "a", .directory = "a/0", .options = {{"local-after", "20"}, {"prune-end", "52"}}};
  const auto timing = timings_of({run}, 8).at(0);
  EXPECT_EQ(timing.options.at("local-after"), "2");
  EXPECT_EQ(timing.options.at("prune-end"), "4");
  EXPECT_FALSE(timing.options.contains("freeze-after"));
}

TEST(Timings, BeginToPruneBeforeTheirMiddle) {
  EXPECT_THAT(cut_short({{"prune-start", "30"}, {"prune-end", "52"}}, 8),
              ElementsAre(Pair("exchanges", "8"), Pair("prune-end", "4"), Pair("prune-start", "2")));
  EXPECT_EQ(cut_short({{"prune-start", "1"}}, 8).at("prune-start"), "1");
  EXPECT_EQ(cut_short({{"prune-start", "30"}, {"local-after", "20"}}, 8).at("prune-start"), "3");
  EXPECT_THAT(cut_short({{"prune-below", "0.01"}, {"prune-every", "20"}}, 8),
              ElementsAre(Pair("exchanges", "8"), Pair("prune-below", "0.01"), Pair("prune-every", "4")));
}

TEST(Timings, FreezeInTheirMiddleWhenTheRunWaitsForStableMasks) {
  EXPECT_THAT(cut_short({{"freeze-after", "\"never\""}, {"freeze-when-stable", "3"}, {"prune-end", "52"}}, 8),
              ElementsAre(Pair("exchanges", "8"), Pair("freeze-after", "4"), Pair("prune-end", "4")));
}

TEST(Timings, TakeOuterStepsFromTheirFirstQuarterOn) {
  EXPECT_EQ(cut_short({{"outer-from", "20"}}, 8).at("outer-from"), "2");
  EXPECT_EQ(cut_short({{"outer-from", "0"}}, 8).at("outer-from"), "0");
}

TEST(Timings, OverlapNothingWhereTheyAreTooShort) {
  EXPECT_EQ(cut_short({{"overlap", "5"}}, 8).at("overlap"), "5");
  EXPECT_FALSE(cut_short({{"overlap", "5"}}, 4).contains("overlap"));
  EXPECT_FALSE(cut_short({{"overlap", "5"}, {"local-after", "2"}}, 6).contains("overlap"));
  const OptionValues late{{"strategy", "\"one_shot\""}, {"prune-at", "0.7"}, {"overlap", "5"}};
  EXPECT_FALSE(cut_short(late, 8).contains("overlap"));
  EXPECT_TRUE(cut_short(late, 12).contains("overlap"));
}

TEST(Timings, HaveNoWarmUpAndPassNoMilestones) {
  EXPECT_THAT(cut_short({{"warmup-epochs", "1.5"}, {"lr", "0.1"}}, 8),
              ElementsAre(Pair("exchanges", "8"), Pair("lr", "0.1"), Pair("warmup-epochs", "0")));
  EXPECT_THAT(cut_short({{"warmup-steps", "30"},
                         {"lr-schedule", "\"milestones\""},
                         {"lr-milestones", "\"30,60\""},
                         {"lr-gamma", "0.2"}},
                        8),
              ElementsAre(Pair("exchanges", "8"), Pair("lr-schedule", "\"constant\"")));
  EXPECT_THAT(cut_short({{"dgc-warmup-epochs", "4"}, {"powersgd-start", "1000"}, {"sparse-warmup", "0.5"}}, 8),
              ElementsAre(Pair("exchanges", "8")));
}

TEST(Timings, HaveOnePhaseWithTheCutInItsMiddle) {
  EXPECT_THAT(cut_short({{"epochs", "40"},
                         {"sparse", "\"group_lasso\""},
                         {"sparse-epochs", "10"},
                         {"sparse-lr", "0.1"},
                         {"prune-to", "\"macs=0.5\""},
                         {"finetune-epochs", "20"},
                         {"finetune-lr", "0.01"},
                         {"finetune-lr-schedule", "\"step\""}},
                        8),
              ElementsAre(Pair("exchanges", "8"), Pair("prune-at", "0.5"), Pair("prune-to", "\"macs=0.5\""),
                          Pair("sparse", "\"group_lasso\"")));
  EXPECT_THAT(cut_short({{"finetune-epochs", "20"}}, 8), ElementsAre(Pair("exchanges", "8")));
}

TEST(Timings, HaveStepsBehindALateCut) {
  const OptionValues cut{{"prune-to", "\"macs=0.5\""}, {"prune-at", "0.9"}};
  EXPECT_EQ(cut_short(cut, 8).at("prune-at"), "0.5");
  EXPECT_EQ(cut_short(cut, 80).at("prune-at"), "0.9");
  EXPECT_EQ(cut_short({{"strategy", "\"one_shot\""}, {"prune-at", "0.9"}}, 4).at("prune-at"), "0.5");
  EXPECT_FALSE(cut_short({{"strategy", "\"ddp\""}}, 1).contains("prune-at"));
  EXPECT_FALSE(cut_short({{"strategy", "\"one_shot\""}, {"groups", "\"none\""}}, 2).contains("prune-at"));
}

TEST(Timings, OfARunThatBeginsWithItsCutHaveItFirst) {
  const auto options = cut_short({{"epochs", "0"}, {"prune-to", "\"macs=0.5\""}, {"finetune-epochs", "20"}}, 8);
  EXPECT_EQ(options.at("prune-at"), "1e-06");
}

TEST(Timings, HaveStepsBehindTheLastOfSeveralCuts) {
  const auto every = [](const std::string& steps, const std::string& apart) {
    return cut_short({{"prune-to", "\"macs=0.5\""},
                      {"finetune-epochs", "20"},
                      {"prune-steps", steps},
                      {"prune-every", apart}},
                     8)
        .at("prune-every");
  };
  EXPECT_EQ(every("2", "5"), "3");  // after 4 of 8, and after 7
  EXPECT_EQ(every("2", "2"), "2");
  EXPECT_EQ(every("4", "5"), "1");
  EXPECT_EQ(every("5", "5"), "0");  // all after one
}

}  // namespace
}  // namespace prunex::study
