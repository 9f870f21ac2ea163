// The command at work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/cli/command.h"
#include "tests/json_lines.h"
#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::cli {
namespace {

using nlohmann::json;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using tests::lines_of;
using tests::text_of;

/// The commands that prunex --help lists.
std::vector<std::string> commands() {
  std::vector<std::string> names;
  bool listed = false;
  for (const auto& line : lines_of(run(".", {"--help"}).output)) {
    if (listed && line.starts_with("  ")) names.push_back(line.substr(2, line.find(' ', 2) - 2));
    listed = listed || line == "Subcommands:";
  }
  return names;
}

TEST(Help, ExistsForEveryCommand) {
  const auto names = commands();
  EXPECT_THAT(names, testing::IsSupersetOf({"train", "graph"}));
  for (const auto& name : names) {
    const Result result = run(".", {name, "--help"});
    EXPECT_EQ(result.status, 0) << name;
    EXPECT_EQ(result.errors, "") << name;
    EXPECT_THAT(result.output, HasSubstr("--help")) << name;
  }
  EXPECT_EQ(run(".", {"--version"}).status, 0);
}

TEST(Help, ShowsDefaults) {
  const std::string text = run(".", {"train", "--help-all"}).output;
  for (const char* part :
       {"--lr FLOAT|auto=auto", "--epochs FLOAT=10", "--kappa FLOAT=0.3", "--mask-rule", "joint", "--config"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(Graph, OfResnet18HasEightInnerAndFourStreamGroups) {
  const tests::Scratch scratch;
  const Result result = run(scratch.path(), {"graph", "--model", "resnet18", "--json", "groups.json"});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("11689512 parameters"));
  std::map<std::string, int> kinds;
  for (const json& group : json::parse(text_of(scratch / "groups.json"))) {
    ++kinds[group["kind"]];
    EXPECT_EQ(group.contains("reason"), !group["prunable"].get<bool>()) << group["name"];
    for (const char* key : {"name", "size", "slices"}) EXPECT_TRUE(group.contains(key)) << key;
  }
  EXPECT_EQ(kinds, (std::map<std::string, int>{{"inner", 8}, {"stream", 4}, {"input", 1}, {"output", 1}}));
}

TEST(Graph, SavesABuiltInNetworkThatItReadsBack) {
  const tests::Scratch scratch;
  const auto groups = [&](const std::string& model) {
    EXPECT_EQ(run(scratch.path(), {"graph", "--model", model, "--json", "groups.json", "--save", "net.pt2"}).status, 0);
    return json::parse(text_of(scratch / "groups.json"));
  };
  const json built_in = groups("resnet8");
  EXPECT_EQ(groups("net.pt2"), built_in);
}

/// 4 exchanges of 2 steps, or as many as `exchanges` says; the masks freeze at the third of four.
std::vector<std::string> short_run(const std::vector<std::string>& more, const std::string& exchanges = "4") {
  std::vector<std::string> arguments{"train",       "--samples",   "80",           "--model", "resnet8",
                                     "--precision", "fp32",        "--batch-size", "8",       "--local-steps",
                                     "2",           "--exchanges", exchanges};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

json metrics_without_seconds(const std::string& directory) {
  json lines = tests::json_lines(directory + "/metrics.jsonl");
  for (json& line : lines) line.erase("seconds");
  return lines;
}

TEST(Train, IsRepeatedByItsConfigurationFile) {
  const tests::Scratch scratch;
  const auto run_into = [&](const std::string& directory, std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--run-dir", directory});
    const Result result = run(scratch.path(), arguments);
    EXPECT_EQ(result.status, 0) << result.errors;
    return metrics_without_seconds(scratch / directory);
  };
  const json first = run_into("first", short_run({"--lr", "0.123456789", "--groups", "filter:0.8+channel:0.5", "--seed",
                                                  "7", "--quiet", "--nodes", "2", "--mask-rule", "union", "--prune-end",
                                                  "3", "--freeze-after", "never", "--no-shrink"}));
  ASSERT_EQ(first.size(), 4);
  EXPECT_EQ(run_into("second", {"train", "--config", "first/config.toml"}), first);
  EXPECT_EQ(text_of(scratch / "second/config.toml"), text_of(scratch / "first/config.toml"));
  EXPECT_THAT(text_of(scratch / "first/config.toml"), Not(HasSubstr("run-dir")));
  const json other = run_into("third", {"train", "--config", "first/config.toml", "--seed", "8"});
  EXPECT_NE(other, first);  // flags win
}

TEST(Train, TakesARunDirectoryOfItsOwnIfNoneIsGiven) {
  const tests::Scratch scratch;
  EXPECT_EQ(run(scratch.path(), short_run({"--quiet"}, "1")).status, 0);
  EXPECT_TRUE(std::filesystem::exists(scratch / "runs/synthetic-resnet8-hsadmm-1/summary.json"));
}

TEST(Train, LetsTheLastOfRepeatedOptionsWin) {
  const tests::Scratch scratch;
  const auto arguments = short_run({"--lr", "0.1", "--lr", "0.25", "--quiet", "--run-dir", "run"}, "1");
  EXPECT_EQ(run(scratch.path(), arguments).status, 0);
  EXPECT_THAT(text_of(scratch / "run/config.toml"), HasSubstr("\nlr = 0.25\n"));
}

TEST(Train, OptionsBesideAPresetWin) {
  const tests::Scratch scratch;
  const auto arguments = short_run(
      {"--preset", "paper", "--nodes", "2", "--keep", "0.75", "--as-printed", "--quiet", "--run-dir", "run"}, "1");
  const Result result = run(scratch.path(), arguments);
  EXPECT_EQ(result.status, 0) << result.errors;
  const auto config = text_of(scratch / "run/config.toml");
  for (const char* line :
       {"mask-rule = \"union\"", "penalty = \"residual\"", "rho1 = 0.0015", "lr = 0.001", "groups = \"channel\"",
        "after-freeze = \"admm\"", "as-printed = true", "keep = 0.75", "batch-size = 8"}) {
    EXPECT_THAT(config, HasSubstr(std::string("\n") + line + "\n"));
  }
}

TEST(Train, APresetForSlowLinksTakesOtherStrategiesAndMasksBesideIt) {
  const tests::Scratch scratch;
  const std::map<std::vector<std::string>, std::vector<std::string>> expected{
      {{"--groups", "coupled-inner"},
       {"strategy = \"diloco\"", "groups = \"coupled-inner\"", "outer-lr = 1", "outer-momentum = 0.5"}},
      {{"--strategy", "local_sgd"}, {"strategy = \"local_sgd\""}}};
  for (const auto& [words, lines] : expected) {
    auto arguments =
        short_run({"--preset", "slow-link", "--nodes", "2", "--quiet", "--run-dir", "run-" + words[1]}, "1");
    arguments.insert(arguments.end(), words.begin(), words.end());
    const Result result = run(scratch.path(), arguments);
    EXPECT_EQ(result.status, 0) << result.errors;
    const auto config = text_of(scratch / ("run-" + words[1] + "/config.toml"));
    EXPECT_THAT(config, HasSubstr("\npayload = \"int2\"\n"));
    for (const auto& line : lines) EXPECT_THAT(config, HasSubstr("\n" + line + "\n"));
  }
}

TEST(Train, ChecksAndPrintsThePlanWithoutStarting) {
  const tests::Scratch scratch;
  const Result fine = run(scratch.path(), short_run({"--check", "--nodes", "2", "--run-dir", "run"}));
  EXPECT_EQ(fine.status, 0) << fine.errors;
  for (const char* part : {"network ", "parameters", "MACs", "images ", "steps", "per epoch", "exchanges",
                           "prune-start 2", "chosen for good in exchange", "MB per exchange and node"}) {
    EXPECT_THAT(fine.output, HasSubstr(part));
  }
  EXPECT_FALSE(std::filesystem::exists(scratch / "run"));
  const Result budget = run(scratch.path(), short_run({"--check", "--keep", "macs=0.6"}));
  EXPECT_THAT(budget.output, HasSubstr("one budget for all, --keep macs=0.6"));
  const auto cuts_of = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"train", "--check", "--model", "resnet8", "--strategy", "ddp", "--samples", "256",
                                 "--prune-to", "macs=0.6", "--finetune-epochs", "4", "--local-steps", "1"});
    return run(scratch.path(), words).output;
  };
  EXPECT_THAT(cuts_of({"--epochs", "0"}), HasSubstr("to macs=0.6 in one cut, before the first step\n"));
  EXPECT_THAT(cuts_of({"--epochs", "1", "--prune-steps", "3"}),
              HasSubstr("to macs=0.6 in 3 cuts, the first after exchange 2, the last after exchange 4\n"));
  const auto plan_of = [&](const std::vector<std::string>& words) {
    return run(scratch.path(), short_run(words, "20")).output;
  };
  EXPECT_THAT(plan_of({"--check", "--keep-schedule", "hard"}), HasSubstr("all at once in exchange 1,"));
  EXPECT_THAT(plan_of({"--check", "--freeze-after", "never", "--freeze-when-stable", "3"}),
              HasSubstr("final once 3 exchanges in a row changed no mask\n"));
  const Result alone = run(scratch.path(), short_run({"--check", "--elastic", "--straggler-factor", "2"}));
  EXPECT_EQ(alone.status, 0) << alone.errors;  // others may come
  const auto prunetrain = short_run({"--check", "--quiet", "--strategy", "prunetrain"});
  EXPECT_THAT(run(scratch.path(), prunetrain).output, HasSubstr("units below 0.0001, after every exchange\n"));
  const Result refused = run(scratch.path(), {"train", "--check", "--dataset", "cifar10"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors, HasSubstr("--data-dir data: test_batch.bin"));
}

TEST(Train, WarnsOfWhatWillDisappoint) {
  const Result result = run(".", short_run({"--check", "--threads", "999"}, "1"));
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.errors, ContainsRegex("warning: 999 threads on [0-9]+ cores: .*; try --threads [0-9]+\n"));
  EXPECT_THAT(result.errors, HasSubstr("warning: 1 exchange: masks need at least 4"));
  EXPECT_THAT(result.errors, HasSubstr("try --exchanges 8\n"));
}

TEST(Train, PrintsOnlyResultsIfQuiet) {
  const tests::Scratch scratch;
  const Result quiet = run(scratch.path(), short_run({"--nodes", "2", "--run-dir", "quiet", "--quiet"}));
  EXPECT_EQ(quiet.status, 0);
  EXPECT_EQ(quiet.errors, "");
  EXPECT_THAT(quiet.output, HasSubstr("accuracy "));
  EXPECT_THAT(quiet.output, HasSubstr("sent between nodes"));
  const Result loud = run(scratch.path(), short_run({"--nodes", "2", "--run-dir", "loud"}));
  EXPECT_EQ(loud.status, 0);
  EXPECT_THAT(loud.errors, HasSubstr("run directory loud\n"));
  EXPECT_THAT(loud.errors, HasSubstr("exchange 4/4"));
  EXPECT_THAT(loud.errors, HasSubstr("loud/model.pt2; prunex report loud"));
  EXPECT_EQ(loud.output, quiet.output);
}

TEST(Train, WritesTheSameRunAsRanksOfALauncher) {
  const tests::Scratch scratch;
  for (const char* directory : {"first", "second"}) {
    const auto arguments = short_run({"--nodes", "2", "--quiet", "--run-dir", directory});
    EXPECT_EQ(run(scratch.path(), arguments).status, 0);
  }
  EXPECT_EQ(metrics_without_seconds(scratch / "first"), metrics_without_seconds(scratch / "second"));
  const json summary = json::parse(text_of(scratch / "first/summary.json"));
  EXPECT_EQ(summary["nodes"], 2);
  EXPECT_NEAR(summary["accuracy"].get<double>(), summary["accuracy_compact"].get<double>(), 2e-4);
  EXPECT_GT(summary["inter_node_bytes"].get<int64_t>(), 0);
  const Result graph = run(scratch.path(), {"graph", "--model", "first/model.pt2"});
  EXPECT_EQ(graph.status, 0) << graph.errors;
  EXPECT_THAT(graph.output, HasSubstr(std::to_string(summary["parameters_compact"].get<int64_t>()) + " parameters"));
}

TEST(Train, StartsNodesOfUnequalSizeAndItsConfigurationRepeatsThem) {
  const tests::Scratch scratch;
  const auto arguments = short_run({"--nodes", "2", "--ranks-per-node", "2,1", "--quiet", "--run-dir", "first"});
  EXPECT_EQ(run(scratch.path(), arguments).errors, "");
  const json summary = json::parse(text_of(scratch / "first/summary.json"));
  EXPECT_EQ(summary["nodes"], 2);
  EXPECT_EQ(summary["ranks_per_node"], (json{2, 1}));
  EXPECT_EQ(run(scratch.path(), {"train", "--config", "first/config.toml", "--quiet", "--run-dir", "second"}).status,
            0);
  EXPECT_EQ(metrics_without_seconds(scratch / "first"), metrics_without_seconds(scratch / "second"));
  EXPECT_EQ(text_of(scratch / "first/config.toml"), text_of(scratch / "second/config.toml"));
}

TEST(Config, MayListTheRanksOfNodesAsAnArray) {
  const tests::Scratch scratch;
  std::ofstream(scratch / "nodes.toml") << "nodes = 3\nranks-per-node = [2, 1]\n";
  EXPECT_THAT(run(scratch.path(), {"train", "--config", "nodes.toml"}).errors,
              HasSubstr("--ranks-per-node: got 2,1 for 3 nodes, wanted one number, or one per node"));
}

TEST(Train, CheckSaysThatNodesAreWorkers) {
  const tests::Scratch scratch;
  const Result plan =
      run(scratch.path(), {"train", "--nodes", "2", "--ranks-per-node", "2", "--in-node", "gradients", "--check"});
  EXPECT_EQ(plan.status, 0) << plan.errors;
  EXPECT_THAT(plan.output, HasSubstr("512 images in every step of all; a node steps as one worker"));
}

TEST(Eval, ScoresTheShippedModelAsTheRunDid) {
  const tests::Scratch scratch;
  EXPECT_EQ(run(scratch.path(), short_run({"--quiet", "--run-dir", "run"})).status, 0);
  const json summary = json::parse(text_of(scratch / "run/summary.json"));
  const Result result = run(scratch.path(), {"eval", "--model", "run/model.pt2", "--samples", "80", "--json",
                                             "score.json", "--answers", "answers.json"});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(text_of(scratch / "answers.json"), text_of(scratch / "run/answers.json"));
  const json score = json::parse(text_of(scratch / "score.json"));
  EXPECT_EQ(score["accuracy"], summary["accuracy_compact"]);
  EXPECT_EQ(score.at("top5_accuracy"), summary.at("top5_accuracy"));
  EXPECT_NEAR(score["loss"].get<double>(), summary["loss"].get<double>(), 1e-4);
  EXPECT_EQ(score["parameters"], summary["parameters_compact"]);
  EXPECT_EQ(score["macs"], summary["macs_compact"]);
  EXPECT_GT(score["milliseconds_per_batch"].get<double>(), 0);
}

bool alive(int pid) {
  return kill(pid, 0) == 0;
}

TEST(Train, EndsWithOneLineWhenARankIsKilled) {
  const tests::Scratch scratch;
  Running training(scratch.path(), prunex(short_run({"--nodes", "2", "--run-dir", "run"}, "100000")));
  ASSERT_TRUE(training.wait_for("exchange 1/100000"));
  const auto ranks = training.children();
  ASSERT_EQ(ranks.size(), 2);
  kill(ranks[1], SIGKILL);
  const Result result = training.finish();
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(errors_of(result),
              ElementsAre("prunex: rank 1 was killed by signal 9 on node 1; ended the other 1 rank"));
  for (const int pid : ranks) EXPECT_FALSE(alive(pid));
}

TEST(Train, EndsAllRanksWhenItIsInterrupted) {
  const tests::Scratch scratch;
  Running training(scratch.path(), prunex(short_run({"--nodes", "2", "--run-dir", "run"}, "100000")));
  ASSERT_TRUE(training.wait_for("exchange 1/100000"));
  const auto ranks = training.children();
  kill(training.pid(), SIGINT);
  const Result result = training.finish();
  EXPECT_EQ(result.status, 130);
  EXPECT_THAT(lines_of(result.errors).back(), HasSubstr("interrupted by signal 2"));
  for (const int pid : ranks) EXPECT_FALSE(alive(pid));
}

}  // namespace
}  // namespace prunex::cli
