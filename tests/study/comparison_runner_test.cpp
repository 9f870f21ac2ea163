// What prunex compare knows of its runs. The lines are such as prunex train --log json writes: docs/use.md.
#include "study/comparison_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "prunex/text/settings.h"
#include "prunex/train/options.h"
#include "tests/study/comparison_files.h"

namespace prunex::study {
namespace {

TEST(ComparisonRunner, ReadsProgressInEveryPhase) {
  for (const std::string phase : {"train", "sparse", "finetune"}) {
    const auto progress =
        progress_in(R"({"event":"exchange","phase":")" + phase + R"(","exchange":3,"exchanges":12,"loss":1.5})");
    ASSERT_TRUE(progress) << phase;
    EXPECT_EQ(progress->share, 0.25);
    EXPECT_EQ(progress->text, "exchange 3/12  loss 1.5000");
  }
}

TEST(ComparisonRunner, TakesNothingElseForProgress) {
  for (const char* line :
       {"", "exchange 3/12  loss 1.5", "{\"event\":\"end\"}", "{", "{\"event\":\"exchange\"}", "[3]"}) {
    EXPECT_FALSE(progress_in(line)) << line;
  }
}

TEST(ComparisonRunner, HandsTheFolderToRunsThatReadOne) {
  const Job job{.name = "a", .directory = "a/0", .options = {{"dataset", "\"cifar100\""}}};
  EXPECT_TRUE(reads_data_dir(job));
  EXPECT_FALSE(reads_data_dir({.name = "a", .directory = "a/0"}));
  EXPECT_FALSE(reads_data_dir({.name = "a", .directory = "a/0", .options = {{"dataset", "\"x.safetensors\""}}}));
}

TEST(ComparisonRunner, HandsTheFolderToRunsThatGoOn) {
  const ComparisonRecord record("out");
  const Job job{.name = "a", .directory = "a/0", .options = {{"dataset", "\"cifar100\""}}};
  EXPECT_THAT(words_of(record, job, {.data_dir = "data"}, true),
              testing::ElementsAre("prunex", "train", "--resume", "out/a/0", "--log", "json", "--data-dir", "data"));
}

/// Every run of the comparisons and examples that are shipped; those of comparisons cut short, too.
TEST(ShippedFiles, SetNoOptionThatHasNoEffect) {
  size_t runs = 0;
  const auto expect_effects = [&runs](const std::string& name, const auto& give) {
    train::TrainOptions options;
    text::OptionList list = train::describe(options);
    give(list);
    train::apply_preset(list, options);
    EXPECT_NO_THROW(list.check()) << name;
    EXPECT_NO_THROW(list.refuse_idle()) << name;
    EXPECT_NO_THROW(train::validate(options)) << name;
    ++runs;
  };
  for (const auto& file : std::filesystem::directory_iterator(PRUNEX_SOURCE_DIR "/compare")) {
    if (file.path().extension() != ".toml") continue;
    for (const auto& run : read_comparison(file.path(), option_of).runs) {
      for (const OptionValues& values : {run.options, cut_short(run.options, 8)}) {
        expect_effects(run.name, [&values](text::OptionList& list) { set_options(list, values); });
      }
    }
  }
  for (const auto& file : std::filesystem::directory_iterator(PRUNEX_SOURCE_DIR "/examples")) {
    if (file.path().extension() != ".toml") continue;
    std::ifstream stream(file.path());
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    expect_effects(file.path(), [&text](text::OptionList& list) {
      list.apply(text, "example", "train");
      text::Option& dataset = *list.find("dataset");  // left open: a folder of images
      if (!dataset.given) dataset.set(PRUNEX_SOURCE_DIR "/examples");
    });
  }
  EXPECT_GT(runs, 200);
}

}  // namespace
}  // namespace prunex::study
