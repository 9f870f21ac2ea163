#include "prunex/train/run/metrics_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::train {
namespace {

using testing::HasSubstr;
using tests::text_of;

/// The file after keep_exchanges(…, 3), and what was said.
std::pair<std::string, std::string> kept(const std::string& before) {
  const tests::Scratch scratch;
  const std::string path = scratch / "metrics.jsonl";
  if (!before.empty()) std::ofstream(path) << before;
  testing::internal::CaptureStderr();
  keep_exchanges(scratch.path(), 3, 30);
  return {text_of(path), testing::internal::GetCapturedStderr()};
}

const std::string kOne = "{\"exchange\":1}\n", kTwo = "{\"exchange\":2}\n", kThree = "{\"exchange\":3}\n";

TEST(KeptExchanges, AreThoseOfTheCheckpoint) {
  const auto [text, said] = kept(kOne + kTwo + kThree + "{\"exchange\":4}\n{\"excha");
  EXPECT_EQ(text, kOne + kTwo + kThree);
  EXPECT_EQ(said, "");
}

TEST(KeptExchanges, LeaveOutWhatIsDamagedRepeatedOrOutOfOrder) {
  for (const auto& before :
       {kOne + "{\"exchange\":2,]\n" + kThree, kOne + kOne + kThree, kOne + kThree + kTwo, kOne + "[2]\n" + kThree}) {
    const auto [text, said] = kept(before);
    EXPECT_EQ(text, kOne + kThree);
    EXPECT_THAT(said, HasSubstr("metrics.jsonl: got 2 whole lines of the exchanges 1 to 3, the rest is left out; the"));
  }
}

TEST(KeptExchanges, AreNotWaitedForInANamedPipe) {
  const tests::Scratch scratch;
  ASSERT_EQ(::mkfifo((scratch / "metrics.jsonl").c_str(), 0600), 0);
  EXPECT_EQ(tests::message([&] { keep_exchanges(scratch.path(), 3, 30); }),
            scratch / "metrics.jsonl: is not a regular file");
}

TEST(KeptChanges, AreThoseThatTheCheckpointHasCounted) {
  const tests::Scratch scratch;
  const std::string path = scratch / "membership.jsonl";
  const std::string lost = "{\"exchange\":4,\"nodes\":[0,2],\"lost\":[1],\"joined\":[]}\n",
                    joined = "{\"exchange\":9,\"nodes\":[0,2,3],\"lost\":[],\"joined\":[3]}\n",
                    again = "{\"exchange\":9,\"nodes\":[0,2],\"lost\":[3],\"joined\":[]}\n";
  keep_changes(scratch.path(), 0, 0);
  EXPECT_FALSE(std::filesystem::exists(path));
  const auto kept = [&](int64_t lost_before, int64_t joined_before) {
    std::ofstream(path) << lost + joined + again + "{\"exch";
    keep_changes(scratch.path(), lost_before, joined_before);
    return text_of(path);
  };
  EXPECT_EQ(kept(0, 0), "");
  EXPECT_EQ(kept(1, 0), lost);
  EXPECT_EQ(kept(1, 1), lost + joined);
  EXPECT_EQ(kept(2, 1), lost + joined + again);
}

TEST(MetricsFile, HasALineForEveryChangeOfNodes) {
  const tests::Scratch scratch;
  MetricsFile file(scratch.path(), false);
  file.append(comm::Change{.roster = {.epoch = 2, .nodes = {0, 2}}, .lost = {1}}, 7);
  EXPECT_THAT(text_of(scratch / "membership.jsonl"), HasSubstr("\"exchange\":7,\"nodes\":[0,2],\"lost\":[1]"));
  EXPECT_EQ(file.problem(), "");
}

TEST(MetricsFile, SaysThatAChangeOfNodesCouldNotBeWritten) {
  const tests::Scratch scratch;
  std::filesystem::create_symlink("/dev/full", scratch / "membership.jsonl");
  MetricsFile file(scratch.path(), false);
  testing::internal::CaptureStderr();
  file.append(comm::Change(), 7);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("membership.jsonl"));
  EXPECT_THAT(file.problem(), HasSubstr("membership.jsonl"));
}

TEST(MetricsFile, KeepsAChangeOfNodesUntilItsFileCanBeOpened) {
  const tests::Scratch scratch;
  std::filesystem::create_directory(scratch / "membership.jsonl");
  MetricsFile file(scratch.path(), false);
  testing::internal::CaptureStderr();
  file.append(comm::Change(), 7);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("membership.jsonl"));
  EXPECT_THAT(file.problem(), HasSubstr("membership.jsonl"));
  std::filesystem::remove(scratch / "membership.jsonl");
  EXPECT_EQ(file.problem(), "");
  EXPECT_THAT(text_of(scratch / "membership.jsonl"), HasSubstr("\"exchange\":7"));
}

TEST(KeptExchanges, MayAllBeMissing) {
  const auto [text, said] = kept("");
  EXPECT_EQ(text, "");
  EXPECT_THAT(said, HasSubstr("got 0 whole lines"));
}

}  // namespace
}  // namespace prunex::train
