// What prunex compare refuses before it starts or removes anything, and what --dry-run prints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/scratch.h"
#include "tests/texts.h"
#include "tests/tools/in_process.h"

namespace prunex::tools {
namespace {

class DryRun : public testing::Test {
 protected:
  Words of(const std::string& common) const {
    tests::write_text(scratch_ / "c.toml", "[common]\n" + common + "\n[[run]]\nname = \"a\"\n");
    return {"compare", scratch_ / "c.toml", "--output", scratch_ / "out", "--dry-run"};
  }

  const tests::Scratch scratch_;
};

TEST_F(DryRun, RefusesOptionsThatNoRunTakes) {
  refused(of("strategy = \"dilco\""), {"'dilco'", "did you mean 'diloco'?"});
  refused(of("samples = \"x\""), {"--samples: got 'x'"});
  refused(of("lr = -3"), {"compare: run 'a': --lr: got -3"});
  refused(of("strategy = \"ddp\"\nkeep = 0.5"), {"--keep: ddp has no masks"});
  refused(of("seed = 3"), {"c.toml:2: 'seed' is set by seeds"});
  EXPECT_EQ(run(of("lr = 0.1")).status, 0);
}

TEST_F(DryRun, NeedsNoFolderOfImages) {
  EXPECT_EQ(run(of("dataset = \"data/not-there-yet\"\nimage-size = 32")).status, 0);
}

TEST(RecordsOfTheRepository, AreOfTheRunsOfTheirFiles) {
  const std::filesystem::path folder = PRUNEX_SOURCE_DIR "/compare";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().stem();
    const auto results = folder / "results" / name;
    if (!std::filesystem::exists(results / "compare.json")) continue;
    const Result result = run({"compare", entry.path(), "--output", results, "--dry-run"});
    EXPECT_EQ(result.status, 0) << name << ": " << result.errors;
    EXPECT_THAT(result.output, testing::HasSubstr("done ")) << name;
  }
}

/// Runs "a" and "b" that are done, with the learning rates 0.1.
class DoneRuns : public testing::Test {
 protected:
  DoneRuns() {
    std::string runs;
    for (const std::string name : {"a", "b"}) {
      tests::write_text(scratch_ / ("out/" + name + "/0/summary.json"), R"({"accuracy": 0.5})");
      runs += (runs.empty() ? "" : ",") + (R"({"directory": ")" + name + R"(/0", "state": "done", "name": ")" + name) +
              R"(", "options": {"lr": "0.1", "seed": "0"}})";
    }
    tests::write_text(record_, R"({"pilots": [], "runs": [)" + runs + "]}");
  }

  /// With these learning rates of a and b.
  Words compare(const std::string& a, const std::string& b, const Words& more) const {
    tests::write_text(scratch_ / "c.toml", "[[run]]\nname = \"a\"\nlr = " + a + "\n[[run]]\nname = \"b\"\nlr = " + b);
    return with({"compare", scratch_ / "c.toml", "--output", scratch_ / "out", "--dirty"}, more);
  }

  const tests::Scratch scratch_;
  const std::string record_ = scratch_ / "out/compare.json";
};

TEST_F(DoneRuns, StayWhereAgainIsRefused) {
  const std::string before = tests::text_of(record_);
  refused(compare("0.1", "0.2", {"--again", "a"}), {"out/b/0 was made with other options"});
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "out/a/0/summary.json"));
  EXPECT_EQ(tests::text_of(record_), before);
}

TEST_F(DoneRuns, OfOtherOptionsAreRefusedByTheDryRunToo) {
  refused(compare("0.2", "0.1", {"--dry-run"}), {"out/a/0 was made with other options", "--again 'a'"});
  const Result again = run(compare("0.2", "0.1", {"--dry-run", "--again", "a"}));
  EXPECT_EQ(again.status, 0) << again.errors;
  EXPECT_THAT(again.output, testing::ContainsRegex("to do +a seed 0 .*\ndone +b seed 0"));
}

TEST_F(DoneRuns, AreFollowedInThePlanByTimingsAndPoints) {
  const std::string cluster = scratch_ / "cluster.sh";
  refused(compare("0.1", "0.1", {"--dry-run", "--verify", "25", "--cluster", cluster}), {"--cluster: got '"});
  tests::write_text(cluster, "");
  std::filesystem::permissions(cluster, std::filesystem::perms::owner_all);
  const auto words = compare("0.1", "0.1", {"--dry-run", "--time-exchanges", "8", "--verify", "25", "--cluster"});
  const Result plan = run(with(words, {cluster}));
  EXPECT_EQ(plan.status, 0) << plan.errors;
  EXPECT_THAT(plan.output,
              testing::ContainsRegex("to do +a timing *\nto do +b timing *\nto do +a seed 0 at 25 Mbit/s"));
}

}  // namespace
}  // namespace prunex::tools
