// Runs are written by run_files.h; expected values are what it wrote.
#include "report/tasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/figures.h"
#include "report/page.h"
#include "report/report.h"
#include "report/verdict.h"
#include "tests/report/run_files.h"
#include "tests/scratch.h"

namespace prunex::report {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using tests::RunFiles;
using tests::Scratch;
using tests::write_run;

RunFiles with(const std::string& option, const std::string& value, double accuracy = 0.9) {
  RunFiles run;
  run.options[option] = value;
  run.accuracy = accuracy;
  return run;
}

TEST(Study, RunsThatDifferOnlyBySeedAreOneVariant) {
  const Scratch scratch;
  write_run(scratch / "a-1", with("seed", "0", 0.90));
  write_run(scratch / "a-2", with("seed", "1", 0.94));
  write_run(scratch / "b-1", with("keep", "0.25"));
  const auto runs = find_runs({scratch.path()}).runs;
  const auto tasks = tasks_of(runs);
  ASSERT_THAT(tasks, SizeIs(1));
  ASSERT_THAT(tasks[0].variants, SizeIs(2));
  EXPECT_EQ(tasks[0].variants[0].name, "hsadmm keep=0.5");
  EXPECT_EQ(tasks[0].variants[1].name, "hsadmm keep=0.25");
  EXPECT_THAT(tasks[0].variants[0].runs, SizeIs(2));
  EXPECT_DOUBLE_EQ(over_seeds(tasks[0].variants[0], accuracy_of).mean, 0.92);
}

TEST(Study, WhereFilesAreAndHowOftenIsEvaluatedDoesNotMatter) {
  const Scratch scratch;
  write_run(scratch / "a", with("data-dir", "\"here\""));
  auto other = with("data-dir", "\"there\"");
  other.options["eval-every"] = "7";
  write_run(scratch / "b", other);
  const auto runs = find_runs({scratch.path()}).runs;
  EXPECT_THAT(tasks_of(runs)[0].variants, SizeIs(1));
}

TEST(Study, FoldersOfNodesAreAnotherTask) {
  const Scratch scratch;
  write_run(scratch / "a", with("data-dir", "\"images\""));
  write_run(scratch / "b", with("data-dir", "\"images/{node}\""));
  write_run(scratch / "c", with("data-dir", "\"others/{node}\""));
  const auto runs = find_runs({scratch.path()}).runs;
  const auto tasks = tasks_of(runs);
  ASSERT_THAT(tasks, SizeIs(3));
  EXPECT_EQ(tasks[1].title, "resnet8 on synthetic in images/{node}");
  EXPECT_THAT(shared_command(tasks[1]), HasSubstr("--data-dir 'images/{node}'"));
}

TEST(Study, TitlesSayWhatIsTestedOn) {
  const Scratch scratch;
  write_run(scratch / "a", with("test-limit", "0"));
  write_run(scratch / "b", with("test-limit", "100"));
  write_run(scratch / "c", with("test", "\"other/val\""));
  const auto tasks = tasks_of(find_runs({scratch.path()}).runs);
  ASSERT_THAT(tasks, SizeIs(3));
  EXPECT_EQ(tasks[0].title, "resnet8 on synthetic");
  EXPECT_EQ(tasks[1].title, "resnet8 on synthetic, first 100 test images");
  EXPECT_EQ(tasks[2].title, "resnet8 on synthetic, tested on other/val");
}

/// A file of another run is none that a command line could name.
TEST(Study, OptionsSayWhoseFilesAreTaken) {
  report::Run run;
  run.declared = {{"strategy", "ddp"}, {"model-of", "whole"}, {"widths-of", "cut"}};
  const std::vector<report::Run> runs{run};
  EXPECT_EQ(shared_command(tasks_of(runs)[0]),
            "prunex train --model 'model.pt2 of whole' --strategy ddp --widths 'structure.json of cut'");
}

TEST(Study, ASeedThatIsThereTwiceCountsOnce) {
  const Scratch scratch;
  for (const char* name : {"a", "again", "b"}) write_run(scratch / name, with("seed", name[0] == 'a' ? "0" : "1"));
  for (const auto& [name, seed] : {std::pair{"aborted", "0"}, {"c", "2"}}) {
    RunFiles unfinished = with("seed", seed);
    unfinished.finished = false;
    write_run(scratch / name, unfinished);
  }
  const auto runs = find_runs({scratch.path()}).runs;
  const auto tasks = tasks_of(runs);
  const Variant& variant = tasks.at(0).variants.at(0);
  EXPECT_THAT(variant.finished(), SizeIs(2));
  ASSERT_THAT(variant.repeated(), SizeIs(2));
  EXPECT_EQ(variant.repeated()[0]->directory, scratch / "again");
  EXPECT_EQ(variant.repeated()[1]->directory, scratch / "aborted");
  EXPECT_EQ(variant.seeds(), 3);
  const auto missing = missing_of(tasks[0]);
  EXPECT_THAT(missing, testing::Contains("not finished: hsadmm (1 of 3)"));
  EXPECT_THAT(missing, testing::Contains("left out, the same options and seed again: " + (scratch / "again") + ", " +
                                         (scratch / "aborted")));
  EXPECT_EQ(summary_table(tasks[0]).rows[0][1].word, "2 of 3");
}

TEST(Study, AnotherNetworkOrDataSetIsAnotherTask) {
  const Scratch scratch;
  write_run(scratch / "a", with("model", "\"resnet8\""));
  write_run(scratch / "b", with("model", "\"resnet20\""));
  write_run(scratch / "c", with("dataset", "\"cifar10\""));
  const auto runs = find_runs({scratch.path()}).runs;
  EXPECT_THAT(tasks_of(runs), SizeIs(3));
}

TEST(Study, ARunThatBeginsWithAnotherRunsNetworkIsOfThatNetwork) {
  const Scratch scratch;
  for (const char* seed : {"0", "1"}) {
    write_run(scratch / ("a/" + std::string(seed)), with("seed", seed));
    for (const char* name : {"b/", "c/"}) {
      RunFiles later = with("seed", seed);
      later.options["model"] = "\"a/" + std::string(seed) + "/model.pt2\"";
      write_run(scratch / (name + std::string(seed)), later);
    }
  }
  std::string runs;
  for (const std::string seed : {"0", "1"}) {
    for (const auto& [name, options] : std::map<std::string, std::string>{
             {"a", R"("model": "\"resnet8\"")"}, {"b", R"("model-of": "a")"}, {"c", R"("model-of": "b")"}}) {
      runs += fmt::format(R"({}{{"name": "{}", "directory": "{}/{}", "state": "done", "options": {{{}}}}})",
                          runs.empty() ? "" : ",", name, name, seed, options);
    }
  }
  tests::write_text(scratch / "compare.json", R"({"pilots": [], "runs": [)" + runs + "]}");
  const auto found = find_runs({scratch.path()}).runs;
  const auto tasks = tasks_of(found);
  ASSERT_THAT(tasks, SizeIs(1));
  EXPECT_THAT(tasks[0].title, HasSubstr("resnet8"));
  ASSERT_THAT(tasks[0].variants, SizeIs(3));
  for (const auto& variant : tasks[0].variants) EXPECT_THAT(variant.runs, SizeIs(2)) << variant.name;
}

TEST(Study, LongDifferencesAreNamedByDirectory) {
  const Scratch scratch;
  for (const char* name : {"first-1", "second-1", "third/1"}) {
    RunFiles run;
    for (const char* option : {"kappa", "penalty", "outer-lr", "outer-momentum"}) {
      run.options[option] = std::string("\"") + name + "\"";
    }
    write_run(scratch / name, run);
  }
  const auto runs = find_runs({scratch.path()}).runs;
  const auto tasks = tasks_of(runs);
  EXPECT_EQ(tasks[0].variants[0].name, "first");
  EXPECT_EQ(tasks[0].variants[1].name, "second");
  EXPECT_EQ(tasks[0].variants[2].name, "third");
}

TEST(Study, CurvesAreMeansWithTheRangeOfTheSeeds) {
  const Scratch scratch;
  write_run(scratch / "a", with("seed", "0", 0.8));
  write_run(scratch / "b", with("seed", "1", 0.9));
  const auto runs = find_runs({scratch.path()}).runs;
  const auto points = over_seeds(tasks_of(runs)[0].variants[0], [](const auto& run) {
    return std::vector<Sample>{{4, static_cast<double>(run.exchanges.back().samples), *run.exchanges.back().accuracy}};
  });
  ASSERT_THAT(points, SizeIs(1));
  EXPECT_DOUBLE_EQ(points[0].x, 400);
  EXPECT_NEAR(points[0].y, 0.85, 1e-12);
  EXPECT_DOUBLE_EQ(points[0].spread->low, 0.8);
  EXPECT_DOUBLE_EQ(points[0].spread->high, 0.9);
}

/// As with another `--eval-every`: a mean of other seeds at every second point would be no line.
TEST(Study, CurvesHaveThePointsOfAllSeeds) {
  const Scratch scratch;
  write_run(scratch / "a", with("seed", "0"));
  write_run(scratch / "b", with("seed", "1"));
  const auto runs = find_runs({scratch.path()}).runs;
  const auto points = over_seeds(tasks_of(runs)[0].variants[0], [](const auto& run) -> std::vector<Sample> {
    if (run.option("seed") == "0") return {{1, 100, 0.1}, {2, 200, 0.2}, {3, 300, 0.3}, {4, 400, 0.4}};
    return {{2, 200, 0.4}, {4, 400, 0.6}};
  });
  ASSERT_THAT(points, SizeIs(2));
  EXPECT_DOUBLE_EQ(points[0].x, 200);
  EXPECT_NEAR(points[0].y, 0.3, 1e-12);
  EXPECT_NEAR(points[1].y, 0.5, 1e-12);
}

std::vector<Sample> last_accuracy(const report::Run& run) {
  return {{4, 400, run.exchanges.back().accuracy.value()}};
}

TEST(Study, UnfinishedRunsAreDrawnWhileNoSeedHasFinished) {
  const Scratch scratch;
  auto unfinished = with("seed", "1", 0.1);
  unfinished.finished = false;
  write_run(scratch / "b", unfinished);
  const auto alone = find_runs({scratch.path()}).runs;
  const auto tasks_alone = tasks_of(alone);
  EXPECT_EQ(over_seeds(tasks_alone[0].variants[0], accuracy_of).count, 0U);
  EXPECT_DOUBLE_EQ(over_seeds(tasks_alone[0].variants[0], Curve(last_accuracy)).at(0).y, 0.1);
  write_run(scratch / "a", with("seed", "0"));
  const auto runs = find_runs({scratch.path()}).runs;
  const auto tasks = tasks_of(runs);
  EXPECT_THAT(tasks[0].variants[0].runs, SizeIs(2));
  EXPECT_EQ(over_seeds(tasks[0].variants[0], accuracy_of).count, 1U);
  EXPECT_DOUBLE_EQ(over_seeds(tasks[0].variants[0], Curve(last_accuracy)).at(0).y, 0.9);
}

TEST(Study, ALastLineThatIsStillBeingWrittenIsNotRead) {
  const Scratch scratch;
  write_run(scratch / "a", {});
  std::ofstream(scratch / "a/metrics.jsonl", std::ios::app) << R"({"exchange":5,"sam)";
  const auto run = read_run(scratch / "a");
  EXPECT_THAT(run.exchanges, SizeIs(4));
  EXPECT_THAT(run.problems, IsEmpty());
}

TEST(Study, BrokenFilesAreNamedAndTheRestIsRead) {
  const Scratch scratch;
  write_run(scratch / "a", {});
  tests::write_text(scratch / "a/structure.json", "{\"groups\": 3");
  const auto run = read_run(scratch / "a");
  EXPECT_THAT(run.exchanges, SizeIs(4));
  EXPECT_THAT(run.problems, ElementsAre(HasSubstr("a/structure.json: ")));
  EXPECT_THAT(run.problems[0], testing::Not(HasSubstr("\n")));
}

TEST(Study, BucketsOfGradientsAreReadWhereARunHasThem) {
  const Scratch scratch;
  tests::RunFiles run;
  write_run(scratch / "a", run);
  EXPECT_THAT(read_run(scratch / "a").summary->buckets, IsEmpty());
  run.partition = R"("buckets":[{"bytes":1000,"ready":0.75},{"bytes":24,"ready":1.0}],)";
  write_run(scratch / "b", run);
  const auto buckets = read_run(scratch / "b").summary->buckets;
  ASSERT_THAT(buckets, SizeIs(2));
  EXPECT_EQ(buckets[0].bytes, 1000);
  EXPECT_EQ(buckets[0].ready, 0.75);
  EXPECT_EQ(buckets[1].bytes, 24);
}

TEST(Study, RanksOfUnevenNodesAreAdded) {
  report::Run run;
  run.options = {{"nodes", "3"}, {"ranks-per-node", "4,2,1"}};
  EXPECT_EQ(run.ranks(), 7);
  run.options["ranks-per-node"] = "2";
  EXPECT_EQ(run.ranks(), 6);
}

TEST(Study, TheShareKeptIsOfTheUnitsThatSurvived) {
  const Scratch scratch;
  const auto share = [&] {
    const auto runs = find_runs({scratch.path()}).runs;
    for (const auto& figure : accuracy_figures(tasks_of(runs)[0])) {
      if (figure.id == "kept") return figure.tables[0].rows[0][1].number.value();
    }
    return -1.0;
  };
  write_run(scratch / "a", {});
  EXPECT_EQ(share(), 0.5);  // of the masks
  tests::write_text(scratch / "a/structure.json",
                    R"({"groups": [{"name": "g", "size": 6, "kept": [0]}, {"name": "h", "size": 2, "kept": [1]}]})");
  EXPECT_EQ(share(), 0.25);
}

TEST(FindRuns, FoldersWithoutRunsAreRefusedByName) {
  const Scratch scratch;
  EXPECT_THROW(find_runs({scratch / "nothing"}), std::invalid_argument);
  try {
    find_runs({scratch.path()});
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr(scratch.path()));
  }
}

TEST(FindRuns, LinksAreNotFollowed) {
  const Scratch scratch;
  write_run(scratch / "a", {});
  std::filesystem::create_symlink("loop", scratch / "loop");
  EXPECT_EQ(find_runs({scratch.path()}).runs.size(), 1);
}

TEST(FindRuns, ComparisonsKeepTheirOrderAndNames) {
  const Scratch scratch;
  write_run(scratch / "dense/0", {});
  write_run(scratch / "cut/0", with("keep", "0.25"));
  write_run(scratch / "not-in-it/0", with("keep", "0.1"));
  tests::write_text(scratch / "compare.json", R"({"runs": [{"name": "dense", "directory": "dense/0"},
    {"name": "cut", "directory": "cut/0"}, {"name": "later", "directory": "later/0"},
    {"name": "gone", "directory": "gone/0", "state": "done", "options": {"model": "\"resnet8\"", "nodes": "2"},
     "summary": {"accuracy": 0.25, "messages": 12}},
    {"name": "broken", "directory": "broken/0", "state": "failed", "error": "no"}],
    "pilots": [{"name": "cut", "rate": 0.1, "summary": {"validation_accuracy": 0.5}}, {"name": "cut", "rate": 0.2}]})");
  tests::write_text(scratch / "verify.json", R"([{"name": "dense", "seed": 0, "mbit": 25, "computed_seconds": 4,
    "measured_seconds": 5, "error": ""}])");
  const auto found = find_runs({scratch.path()});
  ASSERT_THAT(found.runs, SizeIs(3));
  EXPECT_EQ(found.runs[0].name, "dense");
  EXPECT_EQ(found.runs[1].name, "cut");
  EXPECT_EQ(found.runs[2].name, "gone");  // its directory is not there, its summary is
  EXPECT_EQ(found.runs[2].option("model"), "resnet8");
  EXPECT_EQ(found.runs[2].summary->messages.between_nodes, 12);
  EXPECT_THAT(found.failures, SizeIs(1));
  ASSERT_THAT(found.pilots, SizeIs(2));
  EXPECT_EQ(found.pilots[0].accuracy, 0.5);
  EXPECT_FALSE(found.pilots[1].accuracy);
  ASSERT_THAT(found.checks, SizeIs(1));
  EXPECT_EQ(found.checks[0].measured, 5);
}

TEST(FindRuns, RecordsOlderThanTheirPresetsAreReadAndMarked) {
  const Scratch scratch;
  tests::write_text(scratch / "compare.json", R"({"runs": [{"name": "a", "directory": "a/0", "state": "done",
    "options": {"preset": "\"slow-link\""}, "summary": {"accuracy": 0.25, "strategy": "diloco", "local_steps": 40}}],
    "pilots": []})");
  const auto run = find_runs({scratch.path()}).runs.at(0);
  EXPECT_TRUE(run.has_unknown_preset);
  EXPECT_EQ(run.option("strategy"), "diloco");
  EXPECT_EQ(run.option("local-steps"), "40");
}

// A comparison goes on elsewhere: of some runs the directory is there, with every option in config.toml, of others the
// record alone, with those of the comparison's file.
TEST(FindRuns, RecordedAndPresentRunsOfOneNameAreOneVariant) {
  const Scratch scratch;
  auto here = with("seed", "1");
  here.options["width"] = "2";
  here.options["train-limit"] = "0";
  write_run(scratch / "dense/1", here);
  const std::string options = R"("options": {"model": "\"resnet8\"", "dataset": "\"synthetic\"", "width": "2"})";
  tests::write_text(scratch / "compare.json", R"({"runs": [{"name": "dense", "directory": "dense/0", "state": "done",
    "summary": {"accuracy": 0.25}, )" + options + R"(}, {"name": "dense", "directory": "dense/1", )" +
                                                  options + R"(}], "pilots": []})");
  const auto runs = find_runs({scratch.path()}).runs;
  ASSERT_THAT(runs, SizeIs(2));
  EXPECT_EQ(runs[1].options.at("train-limit"), "0");
  const auto tasks = tasks_of(runs);
  ASSERT_THAT(tasks, SizeIs(1));
  ASSERT_THAT(tasks[0].variants, SizeIs(1));
  EXPECT_THAT(tasks[0].variants[0].runs, SizeIs(2));
}

}  // namespace
}  // namespace prunex::report
