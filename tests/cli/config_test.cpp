// What a run leaves in config.toml is what --config and --resume read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/cli/command.h"
#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using tests::text_of;

std::string error_of(const tests::Scratch& scratch, const std::string& config) {
  std::ofstream(scratch / "c.toml", std::ios::binary) << config;
  const Result result = run(scratch.path(), {"train", "--config", "c.toml"});
  EXPECT_EQ(result.status, 2);
  return result.errors;
}

/// The official layout, with four images per file.
void write_cifar(const std::string& folder) {
  fs::create_directory(folder);
  const std::string image(3072, '\x40');
  for (const char* name :
       {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"}) {
    std::ofstream file(folder + "/" + name + ".bin", std::ios::binary);
    for (const char label : {0, 1, 2, 3}) file << label << image;
  }
}

TEST(Config, PathsOfAnyKindSurviveAndAreResumed) {
  const tests::Scratch scratch;
  const std::string folder = "a#b \"c\" 'd' \\n\n[\u00e4] = 1";
  write_cifar(scratch / folder);
  const std::string first = folder + "/first";
  const Result run_of_it = run(scratch.path(), {"train",
                                                "--dataset",
                                                "cifar10",
                                                "--model",
                                                "resnet8",
                                                "--width",
                                                "0.25",
                                                "--batch-size",
                                                "8",
                                                "--exchanges",
                                                "2",
                                                "--local-steps",
                                                "1",
                                                "--warmup-epochs",
                                                "0",
                                                "--checkpoint-every",
                                                "1",
                                                "--data-dir",
                                                folder,
                                                "--quiet",
                                                "--tensorboard",
                                                "--run-dir",
                                                first});
  ASSERT_EQ(run_of_it.status, 0) << run_of_it.errors;
  const Result again = run(scratch.path(), {"train", "--config", first + "/config.toml", "--run-dir", "second"});
  EXPECT_EQ(again.status, 0) << again.errors;
  EXPECT_EQ(text_of(scratch / "second/config.toml"), text_of(scratch / first + "/config.toml"));
  fs::remove(scratch / first + "/summary.json");
  const std::string events = scratch / first + "/events.out.tfevents.prunex";
  const auto bytes = fs::file_size(events);
  const Result resumed = run(scratch.path(), {"train", "--resume", first, "--resume-exchange", "1"});
  EXPECT_EQ(resumed.status, 0) << resumed.errors;
  EXPECT_TRUE(fs::exists(scratch / first + "/summary.json"));
  EXPECT_EQ(fs::file_size(events), bytes);  // of the second exchange one record, the new one
}

TEST(Config, ErrorsNameFileAndLine) {
  const tests::Scratch scratch;
  EXPECT_THAT(error_of(scratch, "seed = 1\nlr = \n"), HasSubstr("--config c.toml:2: "));
  EXPECT_THAT(error_of(scratch, "lr = 1\nlr = 2\n"), HasSubstr("--config c.toml:2: "));
  EXPECT_THAT(error_of(scratch, "\xef\xbb\xbf\nlr = \"fast\"\n"),
              HasSubstr("--config c.toml:2: --lr: got 'fast', wanted a number"));
  EXPECT_THAT(error_of(scratch, "quiet = \"yes\"\n"), HasSubstr("--config c.toml:1: --quiet: got 'yes', wanted true"));
  EXPECT_THAT(error_of(scratch, "\nlearning-rate = 1\n"), HasSubstr("--config c.toml:2: 'learning-rate' is not"));
  EXPECT_THAT(error_of(scratch, "\n[lr]\nx = 1\n"), HasSubstr("--config c.toml:2: 'lr' is a table"));
}

TEST(Config, APathThatAFileCannotHoldIsRefusedAtTheStart) {
  const tests::Scratch scratch;
  const Result result =
      run(scratch.path(), {"train", "--dataset", "cifar10", "--data-dir", "\xff", "--run-dir", "run"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors, HasSubstr("--data-dir: got"));
  EXPECT_FALSE(fs::exists(scratch / "run"));
}

TEST(Config, OptionsOfOneStartAloneGoOnTheCommandLine) {
  const tests::Scratch scratch;
  for (const std::string name : {"resume", "run-dir", "join"}) {
    EXPECT_THAT(error_of(scratch, name + " = \"x\"\n"), HasSubstr("c.toml:1: '" + name + "' goes on the command line"));
  }
}

/// The file has every option that had an effect, most at their usual values; others may take that effect away.
TEST(Config, OfARunGoesWithOtherOptions) {
  const tests::Scratch scratch;
  const std::vector<std::string> common = {"--samples",    "80", "--model",     "resnet8", "--nodes",       "2",
                                           "--batch-size", "4",  "--exchanges", "2",       "--local-steps", "1"};
  std::vector<std::string> first = {"train", "--quiet", "--run-dir", "first", "--keep", "0.6"};
  first.insert(first.end(), common.begin(), common.end());
  ASSERT_EQ(run(scratch.path(), first).status, 0);
  for (const std::vector<std::string>& other :
       {std::vector<std::string>{"--optimizer", "adamw"}, {"--kappa", "0"}, {"--nodes", "1"}}) {
    std::vector<std::string> words = {"train", "--config", "first/config.toml", "--check", "--quiet"};
    words.insert(words.end(), other.begin(), other.end());
    const Result result = run(scratch.path(), words);
    EXPECT_EQ(result.status, 0) << other[0] << ": " << result.errors;
  }
  const Result result = run(scratch.path(), {"train", "--config", "first/config.toml", "--check", "--strategy", "ddp"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors, HasSubstr("--keep: "));  // which is not the usual one
}

/// An older build may have let a run begin with what has no effect.
TEST(Config, OfARunThatGoesOnMayHoldOptionsWithoutEffect) {
  const tests::Scratch scratch;
  ASSERT_EQ(run(scratch.path(),
                {"train", "--samples", "80", "--model", "resnet8", "--batch-size", "4", "--exchanges", "2",
                 "--local-steps", "1", "--strategy", "ddp", "--checkpoint-every", "1", "--quiet", "--run-dir", "first"})
                .status,
            0);
  std::ofstream(scratch / "first/config.toml", std::ios::app) << "kappa = 0.4\n";
  const Result resumed = run(scratch.path(), {"train", "--resume", "first", "--resume-exchange", "1"});
  EXPECT_EQ(resumed.status, 0) << resumed.errors;
  const Result anew = run(scratch.path(), {"train", "--config", "first/config.toml", "--check"});
  EXPECT_THAT(anew.errors, HasSubstr("--kappa: ddp has no duals"));
}

}  // namespace
}  // namespace prunex::cli
