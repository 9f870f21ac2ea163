// Differences and intervals are worked out by hand, with Student's t from printed tables.
#include "report/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "report/drawing.h"

namespace prunex::report {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

/// Finished runs of a task, one per seed.
class Runs {
 public:
  void add(const std::string& name, const std::string& strategy, const std::vector<double>& accuracies,
           int64_t bytes = 1000, int64_t parameters = 50) {
    for (size_t seed = 0; seed < accuracies.size(); ++seed) {
      report::Run run{.directory = name, .name = name};
      run.options = {{"strategy", strategy}, {"seed", std::to_string(seed)}, {"nodes", "2"}};
      run.summary = Summary{.samples = 100, .accuracy = accuracies[seed], .parameters_compact = parameters};
      run.summary->inter_node_bytes = bytes;
      run.summary->seconds.local = 10;
      runs_.push_back(std::move(run));
    }
  }
  report::Run& of(const std::string& name) {
    return *std::find_if(runs_.begin(), runs_.end(), [&](const report::Run& run) { return run.name == name; });
  }
  auto begin() { return runs_.begin(); }
  auto end() { return runs_.end(); }
  Task task() const {
    Task task = tasks_of(runs_).at(0);
    arrange(task);
    return task;
  }
  std::vector<std::string> verdict() const { return verdict_of(task()); }

 private:
  std::vector<report::Run> runs_;
};

TEST(Verdict, NamesTheBestWithTheIntervalOfItsLead) {
  Runs runs;  // pairs differ by 10 and 11 points: 10.5 ± 12.706 x 0.5
  runs.add("ddp", "ddp", {0.80, 0.81});
  runs.add("ours", "hsadmm", {0.90, 0.92});
  EXPECT_EQ(runs.verdict().at(0), "Best test accuracy: ours, 91 ± 13 %, 10.5 ± 6.4 points above ddp.");
}

TEST(Verdict, SaysNoDifferenceWhereTheIntervalHoldsNone) {
  Runs runs;  // pairs differ by 0 and 1 points: 0.5 ± 6.4
  runs.add("ddp", "ddp", {0.80, 0.81});
  runs.add("ours", "hsadmm", {0.80, 0.82});
  EXPECT_THAT(runs.verdict().at(0), HasSubstr("ours, 81 ± 13 %; no difference shown from ddp, 80.5 ± 6.4 %"));
  EXPECT_THAT(runs.verdict().at(0), HasSubstr("(difference: +0.5 ± 6.4 points)."));
}

TEST(Verdict, TheReferenceIsTheDdpOfMostSeeds) {
  Runs runs;
  runs.add("lucky", "ddp", {0.99});
  runs.add("ddp", "ddp", {0.80, 0.81});
  EXPECT_EQ(reference(runs.task())->name, "ddp");
}

TEST(Verdict, ASeedCountsOnce) {
  Runs runs;
  for (int copy = 0; copy < 2; ++copy) runs.add("ddp", "ddp", {0.80, 0.82});
  EXPECT_THAT(runs.task().variants, SizeIs(1));
  EXPECT_THAT(runs.task().variants[0].finished(), SizeIs(2));
}

TEST(Verdict, WhatBeginsWithAnotherRunsNetworkDoesNotCompete) {
  Runs runs;
  runs.add("first", "diloco", {0.80});
  runs.add("second", "diloco", {0.90}, 10);
  runs.of("second").declared = {{"model-of", "first"}, {"epochs", "20"}};
  EXPECT_THAT(runs.verdict().at(0), HasSubstr("first"));
  EXPECT_THAT(runs.verdict().at(1), HasSubstr("first"));
}

TEST(Verdict, WhatBeginsWithAnotherRunsNetworkIsNoReference) {
  Runs runs;
  runs.add("ddp", "ddp", {0.80});
  runs.add("second", "ddp", {0.90}, 10);
  runs.of("second").declared = {{"model-of", "ddp"}, {"strategy", "ddp"}};
  EXPECT_EQ(reference(runs.task())->name, "ddp");
}

TEST(Verdict, OfOneSeedIsDoubted) {
  Runs runs;
  runs.add("ddp", "ddp", {0.80});
  runs.add("ours", "hsadmm", {0.85});
  EXPECT_EQ(runs.verdict().at(0),
            "Best test accuracy: ours, 85.00 %, 5 points above ddp (one seed: it may be chance).");
}

/// Of accuracies that are counted in whole images.
TEST(Verdict, OfSeedsThatDifferByAsMuchIsDoubted) {
  Runs runs;
  runs.add("ddp", "ddp", {0.80, 0.82});
  runs.add("ours", "hsadmm", {0.81, 0.83});
  EXPECT_THAT(runs.verdict().at(0),
              testing::EndsWith("1 points above ddp (by as much in every seed, which gives no interval)."));
}

TEST(Verdict, ATimingThatAllSeedsShareIsDoubted) {
  Runs runs;
  runs.add("ddp", "ddp", {0.80, 0.82});
  runs.add("ours", "hsadmm", {0.81, 0.83});
  for (report::Run& run : runs) {
    run.timed = {Exchange{.index = 1, .samples = 100}};
    run.summary->seconds.local = run.name == "ddp" ? 20 : 10;
  }
  EXPECT_THAT(runs.verdict().at(2), HasSubstr("2 times as fast as ddp (one timing: it may be chance)"));
}

TEST(Verdict, CountsBytesAndParametersAgainstTheNextAndAgainstDdp) {
  Runs runs;
  runs.add("ddp", "ddp", {0.8}, 60000, 100);
  runs.add("middle", "diloco", {0.7}, 3000, 100);
  runs.add("least", "hsadmm", {0.6}, 1000, 40);
  const auto verdict = runs.verdict();
  EXPECT_EQ(verdict.at(1),
            "Fewest bytes between nodes: least, 10 B per image (accuracy 60 %), 3 times fewer than the next, middle, "
            "60 times fewer than ddp.");
  EXPECT_EQ(verdict.at(3), "Smallest network: least, 40 parameters (accuracy 60 %), 2.5 times smaller than ddp.");
}

TEST(Verdict, TimesAreThoseOfAnImage) {
  Runs runs;  // 10 s for 100 images and for 20
  runs.add("ddp", "ddp", {0.8});
  runs.add("short", "hsadmm", {0.3});
  runs.of("short").summary->samples = 20;
  EXPECT_THAT(runs.verdict().at(2), HasSubstr("100 Mbit/s, computed: ddp, 100 ms per image"));
  for (const char* name : {"ddp", "short"}) runs.of(name).summary->inter_node_bytes = 0;
  EXPECT_THAT(runs.verdict().at(1), HasSubstr("Shortest measured training: ddp, 100 ms per image"));
}

TEST(Verdict, OfEqualCountsNamesOneAndCountsTheOthers) {
  Runs runs;
  for (const char* name : {"a", "b", "c"}) runs.add(name, name, {0.8});
  EXPECT_THAT(runs.verdict().at(1), HasSubstr("10 B per image (accuracy 80 %); as much: b and 1 more."));
}

TEST(Verdict, OfARunAloneComparesNothing) {
  Runs runs;
  runs.add("ours", "hsadmm", {0.8, 0.8});
  EXPECT_EQ(runs.verdict().at(0), "Test accuracy of ours: 80.00 %.");
}

TEST(Verdict, WithoutFinishedRunsIsNone) {
  const std::vector<report::Run> runs{report::Run{.directory = "a"}};
  EXPECT_THAT(verdict_of(tasks_of(runs).at(0)), ElementsAre("No run has finished yet."));
}

TEST(Arrange, PutsTheMostAccurateFirstAndUnfinishedLast) {
  std::vector<report::Run> runs(3);
  for (size_t i = 0; i < 3; ++i) runs[i].name = std::string(1, static_cast<char>('a' + i));
  runs[1].summary = Summary{.accuracy = 0.4};
  runs[2].summary = Summary{.accuracy = 0.6};
  Task task = tasks_of(runs).at(0);
  arrange(task);
  std::vector<std::string> names;
  for (const auto& variant : task.variants) names.push_back(variant.name);
  EXPECT_THAT(names, ElementsAre("c", "b", "a"));
}

TEST(Arrange, GivesSixColoursToTheBestAtSomethingAndToDdp) {
  Runs runs;
  runs.add("ddp", "ddp", {0.1}, 9000, 100);
  for (int i = 0; i < 8; ++i) runs.add("n" + std::to_string(i), "diloco", {0.9 - 0.01 * i}, 5000, 100);
  runs.add("thrifty", "hsadmm", {0.05}, 10, 100);
  runs.add("small", "hsadmm", {0.04}, 5000, 10);
  std::set<std::string> coloured;
  std::set<int> styles;
  const Task task = runs.task();
  for (const auto& variant : task.variants) {
    if (variant.style == Style::kOther) continue;
    coloured.insert(variant.name);
    styles.insert(variant.style);
  }
  EXPECT_THAT(coloured, ElementsAre("ddp", "n0", "n1", "n2", "small", "thrifty"));
  EXPECT_THAT(styles, ElementsAre(0, 1, 2, 3, 4, 5));
}

}  // namespace
}  // namespace prunex::report
