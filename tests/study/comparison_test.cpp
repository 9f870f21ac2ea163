// Expected values: written by hand from docs/report.md, "Comparisons".
#include "study/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/study/comparison_files.h"

namespace prunex::study {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Pair;
using testing::SizeIs;
using tests::Scratch;

TEST(Comparison, ARunsOwnOptionsWinOverTheCommonOnes) {
  const Scratch scratch;
  const auto comparison = read(scratch, kFile);
  ASSERT_THAT(comparison.runs, SizeIs(2));
  EXPECT_THAT(comparison.runs[0].options, ElementsAre(Pair("dataset", "\"synthetic\""), Pair("epochs", "8"),
                                                      Pair("strategy", "\"ddp\""), Pair("width", "1.1")));
  EXPECT_THAT(comparison.runs[1].options, ElementsAre(Pair("dataset", "\"synthetic\""), Pair("epochs", "2"),
                                                      Pair("no-shrink", "true"), Pair("width", "1.1")));
  EXPECT_THAT(comparison.runs[1].seeds, ElementsAre(7, 8, 9));
}

TEST(Comparison, FirstSeedsOfAllRunsComeFirst) {
  const Scratch scratch;
  std::vector<std::string> titles;
  for (const auto& job : jobs_of(read(scratch, kFile), [](const NamedRun&) { return 0.05; })) {
    titles.push_back(job.directory);
  }
  EXPECT_THAT(titles, ElementsAre("first/0", "second/7", "first/1", "second/8", "second/9"));
}

TEST(Comparison, PilotsHaveTheirOwnLengthAndRate) {
  const Scratch scratch;
  const auto pilots = pilots_of(read(scratch, kFile));
  ASSERT_THAT(pilots, SizeIs(2));
  EXPECT_EQ(pilots[0].directory, "first/pilot-0.05");
  EXPECT_EQ(config_of(pilots[1], "runs"),
            "dataset = \"synthetic\"\nepochs = 1\nlr = 0.1\nstrategy = \"ddp\"\nvalidation = 100\nwidth = 1.1\n");
}

constexpr const char* kWidths = R"(seeds = [0, 1]
[[run]]
name = "cut"
[[run]]
name = "small"
widths-of = "cut"
strategy = "ddp"
seeds = [1]
)";

TEST(Comparison, ARunMayStartFromTheNetworkOfAnotherOfEqualSeed) {
  const Scratch scratch;
  const auto comparison = read(scratch, R"([common]
model = "resnet20"
[[run]]
name = "a"
teacher = "whole"
seeds = [4]
[[run]]
name = "b"
like = "a"
model-of = "a"
teacher-of = "a"
seeds = [4]
)");
  const auto jobs = jobs_of(comparison, [](const NamedRun&) { return std::nullopt; });
  ASSERT_THAT(jobs, SizeIs(2));
  EXPECT_EQ(config_of(jobs[0], "runs"), "model = \"resnet20\"\nseed = 4\nteacher = \"whole\"\n");
  EXPECT_EQ(config_of(jobs[1], "runs"), "seed = 4\nmodel = \"runs/a/4/model.pt2\"\nteacher = \"runs/a/4/model.pt2\"\n");
}

TEST(Comparison, WhatOtherRunsSayOfTheNetworkIsNotSaidOfOneThatComesFromAFile) {
  const Scratch scratch;
  const auto comparison = read(scratch, R"([common]
width = 2
weights = "w.safetensors"
[[run]]
name = "a"
model = "resnet8"
[[run]]
name = "b"
model-of = "a"
[[run]]
name = "c"
like = "a"
model-of = "b"
[[run]]
name = "d"
widths-of = "a"
)");
  const auto jobs = jobs_of(comparison, [](const NamedRun&) { return std::nullopt; });
  ASSERT_THAT(jobs, SizeIs(4));
  for (const Job& job : {jobs[1], jobs[2]}) {
    EXPECT_THAT(job.options, ElementsAre(Pair("seed", "0"), Pair("weights", "\"w.safetensors\"")));
    EXPECT_THAT(job.stand_in, ElementsAre(Pair("model", "\"resnet8\""), Pair("width", "2")));
  }
  EXPECT_THAT(jobs[3].options, ElementsAre(Pair("seed", "0"), Pair("width", "2")));
  EXPECT_THAT(jobs[3].stand_in, SizeIs(0));
}

TEST(Comparison, ARunMayHaveTheWidthsOfAnotherOfEqualSeed) {
  const Scratch scratch;
  const auto jobs = jobs_of(read(scratch, kWidths), [](const NamedRun&) { return std::nullopt; });
  ASSERT_THAT(jobs, SizeIs(3));
  EXPECT_EQ(jobs[1].directory, "small/1");
  EXPECT_EQ(config_of(jobs[1], "runs/of mine"),
            "seed = 1\nstrategy = \"ddp\"\nwidths = \"runs/of mine/cut/1/structure.json\"\n");
  EXPECT_EQ(config_of(jobs[0], "runs"), "seed = 0\n");
}

TEST(Comparison, ARunMayBeLikeAnotherButForItsOwnOptions) {
  const Scratch scratch;
  const auto comparison = read(scratch, std::string(kFile) + R"([[run]]
name = "third"
like = "second"
epochs = 3
[[run]]
name = "fourth"
like = "first"
lr = 0.2
)");
  ASSERT_THAT(comparison.runs, SizeIs(4));
  EXPECT_THAT(comparison.runs[2].options, ElementsAre(Pair("dataset", "\"synthetic\""), Pair("epochs", "3"),
                                                      Pair("no-shrink", "true"), Pair("width", "1.1")));
  EXPECT_THAT(comparison.runs[2].seeds, ElementsAre(0, 1));
  EXPECT_THAT(comparison.runs[3].rates, SizeIs(0));
  EXPECT_EQ(comparison.runs[3].options.at("lr"), "0.2");
  EXPECT_EQ(comparison.runs[3].options.at("strategy"), "\"ddp\"");
}

TEST(Comparison, ARunThatSaysTheSameOtherwiseHasNothingLeftOfIt) {
  const Scratch scratch;
  const auto comparison = read(scratch, std::string(kFile) + R"([[run]]
name = "third"
like = "first"
exchanges = 4
rates = [0.1]
)");
  EXPECT_THAT(comparison.runs[2].options, ElementsAre(Pair("dataset", "\"synthetic\""), Pair("exchanges", "4"),
                                                      Pair("strategy", "\"ddp\""), Pair("width", "1.1")));
  const OptionValues pilot = pilots_of(comparison)[2].options;
  EXPECT_EQ(pilot.at("epochs"), "1");
  EXPECT_FALSE(pilot.contains("exchanges"));
}

TEST(Comparison, RatesWinOverTheRateOfARunThatItIsLike) {
  const Scratch scratch;
  const auto comparison = read(scratch, R"([pilot]
validation = 9
[[run]]
name = "a"
lr = 0.1
[[run]]
name = "b"
like = "a"
rates = [1, 2]
)");
  EXPECT_EQ(comparison.runs[1].options.count("lr"), 0);
  EXPECT_THAT(comparison.runs[1].rates, ElementsAre(1, 2));
}

TEST(Comparison, RunsThatWaitForAPilotAreNotThereYet) {
  const Scratch scratch;
  EXPECT_THAT(jobs_of(read(scratch, kFile), [](const NamedRun&) { return std::nullopt; }), SizeIs(3));
}

TEST(Comparison, WhateverIsWrongIsNamedWithItsLine) {
  const auto of = [](const std::string& what) {
    return refusal("[pilot]\nvalidation = 9\n[[run]]\nname = \"a\"\n[[run]]\nname = \"b\"\n" + what);
  };
  EXPECT_THAT(of("widths-of = \"c\"\n"), HasSubstr("widths-of: wanted the name of a [[run]] further up"));
  EXPECT_THAT(of("widths-of = \"b\"\n"), HasSubstr("widths-of: wanted the name of a [[run]] further up"));
  EXPECT_THAT(of("widths-of = \"a\"\nrates = [1]\n"), HasSubstr("widths-of and rates: pilots go before"));
  EXPECT_THAT(of("widths-of = \"a\"\nwidths = \"x\"\n"), HasSubstr("widths-of and widths: wanted one of them"));
  EXPECT_THAT(of("widths-of = \"a\"\nseeds = [0, 3]\n"), HasSubstr("widths-of: 'a' has no seed 3"));
  EXPECT_THAT(of("model-of = \"a\"\nmodel = \"vgg16\"\n"), HasSubstr("model-of and model: wanted one of them"));
  EXPECT_THAT(of("model-of = \"a\"\nwidth = 2\n"), HasSubstr("c.toml:8: model-of and width: wanted one of them"));
  EXPECT_THAT(of("norm = \"group\"\nmodel-of = \"a\"\n"), HasSubstr("c.toml:7: model-of and norm: wanted one of"));
  EXPECT_THAT(of("model-of = \"a\"\nwidths-of = \"a\"\n"), HasSubstr("c.toml:8: model-of and widths-of: wanted one"));
  EXPECT_THAT(of("widths-of = \"a\"\nweights = \"x\"\n"), HasSubstr("c.toml:8: widths-of and weights: wanted one of"));
  EXPECT_THAT(of("like = \"b\"\n"), HasSubstr("like: wanted the name of a [[run]] further up"));
  EXPECT_THAT(of("rates = [1]\n[[run]]\nname = \"c\"\nlike = \"b\"\n"),
              HasSubstr("like: 'b' has rates, which pilots choose from; wanted lr or rates here, too"));
  EXPECT_THAT(of("widths-of = \"a\"\n[[run]]\nname = \"c\"\nlike = \"b\"\n"),
              HasSubstr("like: 'b' has widths-of; wanted it here, too"));
  EXPECT_THAT(refusal("[common]\nwidht = 2\n[[run]]\nname = \"a\"\n"), HasSubstr("c.toml:2: 'widht' is not an option"));
  EXPECT_THAT(refusal("[commun]\n[[run]]\nname = \"a\"\n"), HasSubstr("c.toml:1: 'commun' is not known here"));
  EXPECT_THAT(refusal("[[run]]\nname = \"a\"\n\n[[run]]\nname = \"a\"\n"), HasSubstr("c.toml:4: there are two"));
  EXPECT_THAT(refusal("[[run]]\nname = \"../a\"\n"), HasSubstr("c.toml:1: name: got '../a'"));
  EXPECT_THAT(refusal("[[run]]\nname = \"compare.json\"\n"),
              HasSubstr("c.toml:1: name: got 'compare.json', a file of"));
  EXPECT_THAT(refusal("[[run]]\nname = \"" + std::string(101, 'a') + "\"\n"), HasSubstr("at most 100 letters"));
  EXPECT_THAT(refusal("seeds = [1,\n1]\n[[run]]\nname = \"a\"\n"), HasSubstr("c.toml:2: seeds: 1 is there twice"));
  EXPECT_THAT(refusal("[[run]]\nname = \"a\"\nrates = [0.1, 0.1]\n"), HasSubstr("c.toml:3: rates: 0.1 is there twice"));
  EXPECT_THAT(refusal("[[run]]\nkeep = 1\n"), HasSubstr("c.toml:1: a [[run]] wants name"));
  EXPECT_THAT(refusal("[[run]]\nname = \"a\"\nkeep = [1]\n"), HasSubstr("c.toml:3: keep: wanted a word"));
  EXPECT_THAT(refusal("[[run]]\nname = \"a\"\nrates = [\"x\"]\n"), HasSubstr("c.toml:3: rates: wanted a list"));
  EXPECT_THAT(refusal("seeds = [-1]\n[[run]]\nname = \"a\"\n"), HasSubstr("c.toml:1: seeds: got -1"));
  EXPECT_THAT(refusal("[[run]]\nname = \"a\"\nseed = 1\n"), HasSubstr("c.toml:3: 'seed' is set by seeds"));
  EXPECT_THAT(refusal("[[run]]\nname = \"a\"\nrates = [1]\n"), EndsWith("wanted [pilot] with validation = N"));
  EXPECT_THAT(refusal("[[run]]\nname = = 1\n"), HasSubstr("c.toml:2: "));
  EXPECT_THAT(refusal("seeds = [0]\n"), HasSubstr("no [[run]]"));
  EXPECT_THAT(refusal(""), HasSubstr("no [[run]]"));
}

TEST(Comparison, AFileThatIsNotThereIsNamed) {
  EXPECT_THROW(read_comparison("/nowhere/c.toml", option_of), std::invalid_argument);
}

TEST(Comparison, PilotsMayHaveSeveralSeeds) {
  const Scratch scratch;
  const auto pilots = pilots_of(read(scratch, kTwoSeeds));
  ASSERT_THAT(pilots, SizeIs(4));
  EXPECT_EQ(pilots[1].directory, "a/pilot-0.1-8");
  EXPECT_EQ(pilots[1].options.at("seed"), "8");
  EXPECT_EQ(pilots[1].title(), "a pilot, lr 0.1, seed 8");
  EXPECT_THAT(refusal("[pilot]\nvalidation = 1\nseeds = [1]\nseed = 2\n[[run]]\nname = \"a\"\n"),
              HasSubstr("c.toml:4: 'seed' is set by seeds"));
}

}  // namespace
}  // namespace prunex::study
