// Nodes that die while a run trains: the others go on, and the run ends well.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tests/cli/command.h"
#include "tests/json_lines.h"
#include "tests/listening.h"
#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::cli {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using tests::text_of;

class Elastic : public testing::Test {
 protected:
  /// Sends `signal` to some ranks once the run has made so many exchanges.
  Result run_and(int signal, const std::vector<std::pair<int, int>>& exchange_and_rank,
                 const std::vector<std::string>& more) {
    auto words =
        prunex({"train", "--elastic", "--samples", "320", "--model", "resnet8", "--precision", "fp32", "--batch-size",
                "8", "--exchanges", "30", "--local-steps", "2", "--eval-every", "10", "--run-dir", "run"});
    words.insert(words.end(), more.begin(), more.end());
    Running training(scratch_.path(), words);
    for (const auto& [exchange, rank] : exchange_and_rank) {
      EXPECT_TRUE(makes(exchange));
      if (ranks_.empty()) ranks_ = training.children();
      kill(ranks_.at(static_cast<size_t>(rank)), signal);
    }
    return training.finish();
  }

  /// A second node joins the run of one; a third, which is returned, waits while ten exchanges are made.
  std::unique_ptr<Running> third_that_waits(Running& training, std::unique_ptr<Running>& second) const {
    EXPECT_TRUE(training.wait_for("exchange 2/"));
    second = std::make_unique<Running>(scratch_.path(), prunex({"train", "--join", "run"}));
    EXPECT_TRUE(training.wait_for("node 1 joined after exchange "));
    auto third = std::make_unique<Running>(scratch_.path(), prunex({"train", "--join", "run"}));
    EXPECT_TRUE(third->wait_for("waits to be let into the run"));
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(training.wait_for("exchange "));
    EXPECT_EQ(lines_of("membership.jsonl").size(), 1U) << "it waits while there are two";
    return third;
  }

  /// The first two ranks are silent until the others, who are too few, look for them.
  void find_again(const std::vector<std::string>& more, const std::string& found) const {
    Running training(scratch_.path(), endless_elastic_run(more));
    ASSERT_TRUE(training.wait_for("exchange 3/"));
    const auto ranks = training.children();
    for (const size_t rank : {0, 1}) kill(ranks.at(rank), SIGSTOP);
    ASSERT_TRUE(training.wait_for("looking for them for 60 s"));
    for (const size_t rank : {0, 1}) kill(ranks.at(rank), SIGCONT);
    EXPECT_TRUE(training.wait_for(found));
    kill(training.pid(), SIGTERM);
    EXPECT_EQ(training.finish().status, 128 + SIGTERM);
    for (const json& change : lines_of("membership.jsonl")) EXPECT_THAT(change.at("lost"), testing::IsEmpty());
  }

  std::vector<json> lines_of(const std::string& file) const { return tests::json_lines(scratch_ / ("run/" + file)); }

  /// Waits until the run has made so many exchanges. Its record has them sooner than the launcher's standard error,
  /// which waits for a processor.
  bool makes(int64_t exchanges) const {
    const auto made = [&] { return tests::lines_written(scratch_ / "run/metrics.jsonl") >= exchanges; };
    for (int i = 0; i < 12000 && !made(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return made();
  }

  /// Waits for an exchange after the one of that line of membership.jsonl.
  bool exchange_follows(size_t change) const {
    return makes(lines_of("membership.jsonl").at(change).at("exchange").get<int64_t>() + 1);
  }

  void expect_whole_record(int64_t lost) const {
    const auto lines = lines_of("metrics.jsonl");
    ASSERT_EQ(lines.size(), 30U);
    for (size_t k = 0; k < lines.size(); ++k) EXPECT_EQ(lines[k].at("exchange"), k + 1);
    const json summary = json::parse(text_of(scratch_ / "run/summary.json"));
    EXPECT_EQ(summary.at("nodes_lost"), lost);
    EXPECT_EQ(summary.at("accuracy"), summary.at("accuracy_compact"));
    EXPECT_EQ(summary.at("samples"), lines.back().at("samples"));
    for (const int pid : ranks_) EXPECT_NE(kill(pid, 0), 0) << pid;
  }

  const tests::Scratch scratch_;
  std::vector<int> ranks_;
};

TEST_F(Elastic, RunsOutliveRank0AndThenAnotherNode) {
  const Result result = run_and(SIGKILL, {{3, 0}, {12, 2}}, {"--nodes", "3"});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("prunex: lost node 0 after exchange "));
  expect_whole_record(2);
  std::vector<json> losses;
  for (const json& change : lines_of("membership.jsonl")) {
    if (!change.at("lost").empty()) losses.push_back(change);
  }
  ASSERT_EQ(losses.size(), 2U);
  EXPECT_THAT(losses[0].at("nodes"), ElementsAre(1, 2));
  EXPECT_EQ(losses[0].at("epoch"), 1);
  EXPECT_THAT(losses[1].at("lost"), ElementsAre(2));
  EXPECT_GE(losses[1].at("exchange"), losses[0].at("exchange"));
}

/// From the step on in which it happened: of the lost node's work, a step of 8 images is missing.
TEST_F(Elastic, RunsOfGradientsOutliveNodes) {
  for (const char* strategy : {"ddp", "top_k", "powersgd", "prunetrain"}) {
    ranks_.clear();
    const Result result = run_and(SIGKILL, {{3, 0}, {12, 2}}, {"--nodes", "3", "--strategy", strategy});
    EXPECT_EQ(result.status, 0) << result.errors;
    expect_whole_record(2);
    const json summary = json::parse(text_of(scratch_ / "run/summary.json"));
    EXPECT_EQ(summary.at("images_lost"), 2 * 8) << strategy;
    EXPECT_THAT(result.errors, HasSubstr("lost node 2 after exchange "));
    std::filesystem::remove_all(scratch_ / "run");
  }
}

class ElasticNodes : public Elastic, public testing::WithParamInterface<const char*> {};

TEST_P(ElasticNodes, ComeBackWhenLost) {
  Running training(scratch_.path(),
                   endless_elastic_run({"--nodes", "2", "--ranks-per-node", "2", "--in-node", GetParam()}));
  ASSERT_TRUE(training.wait_for("exchange 3/"));
  ranks_ = training.children();
  kill(ranks_.at(1), SIGKILL);
  ASSERT_TRUE(training.wait_for("node 2 joined after exchange "));
  for (const int pid : training.children()) ranks_.push_back(pid);
  const auto joined_after = lines_of("membership.jsonl").at(1).at("exchange").get<size_t>();
  while (lines_of("metrics.jsonl").size() < joined_after + 3) ASSERT_TRUE(training.wait_for("exchange "));
  kill(training.pid(), SIGTERM);
  EXPECT_EQ(training.finish().status, 128 + SIGTERM);

  const auto changes = lines_of("membership.jsonl");
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_THAT(changes[1].at("nodes"), ElementsAre(1, 2));
  EXPECT_THAT(changes[1].at("joined"), ElementsAre(2));
  const auto lines = lines_of("metrics.jsonl");
  const auto joined = changes[1].at("exchange").get<size_t>();
  ASSERT_GT(lines.size(), joined + 2);
  const auto images = [&](size_t k) {
    return lines[k - 1].at("samples").get<int>() - lines[k - 2].at("samples").get<int>();
  };
  EXPECT_EQ(images(joined + 1), 2 * 2 * 8) << "who has just joined has not trained";
  EXPECT_EQ(images(joined + 2), 4 * 2 * 8);
}

INSTANTIATE_TEST_SUITE_P(InNode, ElasticNodes, testing::Values("weights", "gradients"));

/// Without waiting for an exchange, as all that they need is there before the next step.
TEST_F(Elastic, LostNodesComeBackToRunsOfGradients) {
  Running training(scratch_.path(),
                   endless_elastic_run({"--nodes", "2", "--ranks-per-node", "2", "--strategy", "ddp", "--ema", "0.9"}));
  ASSERT_TRUE(training.wait_for("exchange 3/"));
  ranks_ = training.children();
  kill(ranks_.at(1), SIGKILL);
  ASSERT_TRUE(training.wait_for("node 2 joined after exchange "));
  for (const int pid : training.children()) ranks_.push_back(pid);
  ASSERT_TRUE(exchange_follows(1));
  kill(ranks_.at(2), SIGKILL);  // of those who were there
  ASSERT_TRUE(training.wait_for("node 3 joined after exchange "));
  ASSERT_TRUE(exchange_follows(3));
  kill(training.pid(), SIGTERM);
  EXPECT_EQ(training.finish().status, 128 + SIGTERM);
  const auto changes = lines_of("membership.jsonl");
  ASSERT_EQ(changes.size(), 4U);
  EXPECT_THAT(changes[3].at("nodes"), ElementsAre(2, 3));
  const auto lines = lines_of("metrics.jsonl");
  const auto joined = changes[3].at("exchange").get<size_t>();
  ASSERT_GT(lines.size(), joined);
  EXPECT_EQ(lines[joined].at("samples").get<int>() - lines[joined - 1].at("samples").get<int>(), 4 * 2 * 8);
}

TEST_F(Elastic, ANodeJoinsARunByItsDirectory) {
  Running training(scratch_.path(),
                   endless_elastic_run({"--strategy", "diloco", "--payload", "int4", "--max-nodes", "2"}));
  std::unique_ptr<Running> second;
  {
    const auto third = third_that_waits(training, second);
    kill(second->pid(), SIGKILL);
    EXPECT_TRUE(training.wait_for("lost node 1"));
    EXPECT_TRUE(training.wait_for("node 2 joined"));
  }
  EXPECT_TRUE(training.wait_for("lost node 2"));
  kill(training.pid(), SIGTERM);
  EXPECT_EQ(training.finish().status, 128 + SIGTERM);
  const Result other = run(scratch_.path(), {"train", "--join", "run", "--eval-every", "3"});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.errors, HasSubstr("--eval-every: got 3, the run in run had"));
  const Result late = run(scratch_.path(), {"train", "--join", "run"});
  EXPECT_EQ(late.status, 1);
  EXPECT_THAT(late.errors, HasSubstr("nobody answers at the doors of the run"));
  EXPECT_EQ(run(scratch_.path(), {"train", "--join", "nowhere"}).status, 2);
}

/// Three would want 24 images in a step.
TEST_F(Elastic, ANodeWaitsWhoseBatchTheImagesLack) {
  Running training(scratch_.path(),
                   endless_elastic_run({"--strategy", "diloco", "--samples", "20", "--batch-size", "8"}));
  std::unique_ptr<Running> second;
  const auto third = third_that_waits(training, second);
  kill(training.pid(), SIGTERM);
  EXPECT_EQ(training.finish().status, 128 + SIGTERM);
}

TEST_F(Elastic, RunsLoseANodeWithOneOfItsRanks) {
  const Result result = run_and(SIGKILL, {{20, 3}},
                                {"--nodes", "3", "--ranks-per-node", "2", "--strategy", "diloco", "--payload", "int2"});
  EXPECT_EQ(result.status, 0) << result.errors;
  expect_whole_record(1);
  EXPECT_THAT(lines_of("membership.jsonl").at(0).at("nodes"), ElementsAre(0, 2));
}

TEST_F(Elastic, RunsOfWorkersOutliveThem) {
  const Result result =
      run_and(SIGKILL, {{3, 0}, {12, 3}}, {"--nodes", "3", "--ranks-per-node", "2,2,1", "--in-node", "gradients"});
  EXPECT_EQ(result.status, 0) << result.errors;
  expect_whole_record(2);
}

TEST_F(Elastic, RunsOnNodesOfDifferentSizesOutliveThem) {
  const Result result = run_and(SIGKILL, {{3, 0}, {12, 3}}, {"--nodes", "3", "--ranks-per-node", "2,1,1"});
  EXPECT_EQ(result.status, 0) << result.errors;
  expect_whole_record(2);
  const auto lines = lines_of("metrics.jsonl");
  const auto images = [&](size_t k) {
    return lines[k - 1].at("samples").get<int>() - lines[k - 2].at("samples").get<int>();
  };
  EXPECT_EQ(images(2), 4 * 2 * 8);
  EXPECT_EQ(images(30), 2 * 8);
  EXPECT_EQ(json::parse(text_of(scratch_ / "run/summary.json")).at("images_lost"), 3 * 2 * 8);
}

TEST_F(Elastic, RunsOnSitesOutliveTheirNodes) {
  const Result result = run_and(SIGKILL, {{3, 3}, {12, 0}}, {"--nodes", "4", "--sites", "2", "--strategy", "scaffold"});
  EXPECT_EQ(result.status, 0) << result.errors;
  expect_whole_record(2);
  const json traffic = json::parse(text_of(scratch_ / "run/summary.json")).at("traffic");
  EXPECT_FALSE(traffic.at("cross").empty());
  EXPECT_FALSE(traffic.at("rail").empty()) << "while one site had two nodes and the other one";
}

TEST_F(Elastic, RunsGoOnWithoutAStoppedNodeThatIsNotTheMajority) {
  const Result result = run_and(SIGSTOP, {{3, 1}}, {"--nodes", "3", "--partition", "classes:4"});
  EXPECT_EQ(result.status, 0) << result.errors;
  expect_whole_record(1);
}

/// The lowest one, for which the others wait while they can.
TEST_F(Elastic, AFirstNodeThatWasSilentFindsThatTheOthersWentOn) {
  Running training(scratch_.path(), endless_elastic_run({"--nodes", "3"}));
  ASSERT_TRUE(training.wait_for("exchange 3/"));
  const int first = training.children().at(0);
  kill(first, SIGSTOP);
  ASSERT_TRUE(training.wait_for("lost node 0 after exchange "));
  kill(first, SIGCONT);
  EXPECT_TRUE(training.wait_for("the others went on without this node, 0"));
  EXPECT_TRUE(training.wait_for("node 3 joined after exchange "));
  kill(training.pid(), SIGTERM);
  EXPECT_EQ(training.finish().status, 128 + SIGTERM);
}

/// As across a network that was away for a while: who looks for the majority joins those who are there again.
TEST_F(Elastic, AMajorityThatWasSilentIsFoundAgain) {
  find_again({"--nodes", "3"}, "3 go on after");
}

/// Also by those who follow another one that looks for them.
TEST_F(Elastic, HalfThatWasSilentIsFoundAgain) {
  find_again({"--nodes", "4"}, "4 go on after");
}

TEST_F(Elastic, ANodeOfSeveralRanksThatWasSilentIsFoundAgain) {
  find_again({"--nodes", "2", "--ranks-per-node", "2"}, "2 go on after");
}

TEST_F(Elastic, ANodeIsLostWithOneStoppedRank) {
  const Result result = run_and(SIGSTOP, {{3, 3}}, {"--nodes", "3", "--ranks-per-node", "2"});
  EXPECT_EQ(result.status, 0) << result.errors;
  expect_whole_record(1);
}

TEST_F(Elastic, TheFirstNodeIsLostWithOneStoppedRank) {
  const Result result = run_and(SIGSTOP, {{3, 1}}, {"--nodes", "3", "--ranks-per-node", "2"});
  EXPECT_EQ(result.status, 0) << result.errors;
  expect_whole_record(1);
}

/// As a launcher starts them.
std::vector<Result> on_nodes(const std::string& directory, int nodes, const std::vector<std::string>& words,
                             int ranks_per_node = 1) {
  const int port = tests::free_port(15000), size = nodes * ranks_per_node;
  std::vector<std::unique_ptr<Running>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(std::make_unique<Running>(directory, as_rank(rank, size, port, words, ranks_per_node)));
  }
  std::vector<Result> results;
  for (auto& rank : ranks) results.push_back(rank->finish());
  return results;
}

TEST_F(Elastic, RunsGoOnFromACheckpointOnAnotherNumberOfNodes) {
  const Result stopped = run_and(SIGINT, {{5, 0}}, {"--nodes", "3", "--checkpoint-every", "4"});
  ASSERT_EQ(stopped.status, 128 + SIGINT) << stopped.errors;
  const auto words = prunex({"train", "--resume", "run", "--checkpoint-every", "4"});
  for (const Result& rank : on_nodes(scratch_.path(), 2, words)) EXPECT_EQ(rank.status, 0) << rank.errors;
  expect_whole_record(0);
  const auto lines = lines_of("metrics.jsonl");
  EXPECT_EQ(lines[29].at("samples").get<int>() - lines[28].at("samples").get<int>(), 2 * 2 * 8);

  const auto again = prunex({"train", "--resume", "run", "--resume-exchange", "28", "--checkpoint-every", "4"});
  for (const Result& rank : on_nodes(scratch_.path(), 4, again)) EXPECT_EQ(rank.status, 0) << rank.errors;
  EXPECT_EQ(lines_of("metrics.jsonl")[27], lines[27]);
  EXPECT_EQ(lines_of("metrics.jsonl")[29].at("samples").get<int>() - lines[27].at("samples").get<int>(), 2 * 4 * 2 * 8);
  for (const Result& rank : on_nodes(scratch_.path(), 1, prunex({"train", "--resume", "run", "--min-nodes", "2"}))) {
    EXPECT_EQ(rank.status, 2);
    EXPECT_THAT(rank.errors, HasSubstr("--min-nodes: got 2, the launcher started 1 nodes x 1 ranks"));
  }
  // what the launcher starts in the place of a rank of the run above that is lost
  auto back = again;
  back.insert(back.end(), {"--join", "run"});
  const Result rank = run_program(scratch_.path(), back);
  EXPECT_THAT(rank.errors, HasSubstr("--join: run has no run that is under way"));
}

/// As a machine that is taken away does; the launcher of all would signal them all.
TEST_F(Elastic, ANodeThatIsAskedToStopLeavesAndTheOthersGoOn) {
  const auto words = endless_elastic_run({"--nodes", "3", "--checkpoint-every", "5"});
  const int port = tests::free_port(15000);
  Running first(scratch_.path(), as_rank(0, 3, port, words)), second(scratch_.path(), as_rank(1, 3, port, words)),
      third(scratch_.path(), as_rank(2, 3, port, words));
  ASSERT_TRUE(first.wait_for("exchange 3/"));
  kill(second.pid(), SIGTERM);
  const Result left = second.finish();
  EXPECT_EQ(left.status, 128 + SIGTERM);
  EXPECT_THAT(left.errors, HasSubstr("left by signal 15 after exchange "));
  EXPECT_TRUE(first.wait_for("lost node 1 after exchange "));
  ASSERT_TRUE(exchange_follows(0));
  for (Running* rank : {&first, &third}) kill(rank->pid(), SIGTERM);
  const Result ended = first.finish();
  EXPECT_EQ(ended.status, 128 + SIGTERM);
  EXPECT_THAT(ended.errors, HasSubstr("prunex train --resume run goes on after exchange"));
  EXPECT_EQ(third.finish().status, 128 + SIGTERM);
}

/// The file of its doors is still there.
TEST_F(Elastic, RunsOfSeveralRanksPerNodeThatNameAnInterfaceGoOnUnderALauncher) {
  const Result stopped = run_and(
      SIGINT, {{5, 0}}, {"--nodes", "2", "--ranks-per-node", "2", "--interface", "lo", "--checkpoint-every", "4"});
  ASSERT_EQ(stopped.status, 128 + SIGINT) << stopped.errors;
  ASSERT_TRUE(std::filesystem::exists(scratch_ / "run/doors"));
  for (const Result& rank : on_nodes(scratch_.path(), 2, prunex({"train", "--resume", "run"}), 2)) {
    EXPECT_EQ(rank.status, 0) << rank.errors;
  }
  expect_whole_record(0);
}

TEST_F(Elastic, DoorsStandWithinThePortsThatAreNamed) {
  const int first = tests::free_port(20000), last = first + 31;
  const Result stopped = run_and(
      SIGINT, {{5, 0}}, {"--nodes", "2", "--checkpoint-every", "4", "--ports", fmt::format("{}-{}", first, last)});
  ASSERT_EQ(stopped.status, 128 + SIGINT) << stopped.errors;
  std::istringstream doors(text_of(scratch_ / "run/doors"));
  int found = 0;
  for (std::string word, host; doors >> word; host = word) {
    if (host != "127.0.0.1") continue;
    EXPECT_THAT(std::stoi(word), testing::AllOf(testing::Ge(first), testing::Le(last)));
    ++found;
  }
  EXPECT_EQ(found, 2);
}

/// It takes those whose doors are closed for dead, and is not to write over what they have left.
TEST_F(Elastic, ANodeThatComesBackAfterTheEndLeavesTheResults) {
  const auto words = prunex({"train", "--elastic", "--samples", "320", "--model", "resnet8", "--batch-size", "8",
                             "--exchanges", "30", "--local-steps", "2", "--nodes", "3", "--run-dir", "run"});
  const int port = tests::free_port(15000);
  Running first(scratch_.path(), as_rank(0, 3, port, words)), second(scratch_.path(), as_rank(1, 3, port, words)),
      third(scratch_.path(), as_rank(2, 3, port, words));
  ASSERT_TRUE(first.wait_for("exchange 3/"));
  kill(first.pid(), SIGSTOP);
  EXPECT_EQ(second.finish().status, 0);
  EXPECT_EQ(third.finish().status, 0);
  kill(first.pid(), SIGCONT);
  const Result late = first.finish();
  EXPECT_EQ(late.status, 1);
  EXPECT_THAT(late.errors, HasSubstr("the others have ended the run without this node"));
  expect_whole_record(1);
}

/// As launchers do that start again what has failed, however late.
TEST_F(Elastic, ARankThatIsStartedAgainAfterTheEndEndsWell) {
  const auto words = prunex({"train", "--elastic", "--samples", "320", "--model", "resnet8", "--batch-size", "8",
                             "--exchanges", "3", "--local-steps", "2", "--nodes", "2", "--run-dir", "run"});
  for (const Result& rank : on_nodes(scratch_.path(), 2, words)) EXPECT_EQ(rank.status, 0) << rank.errors;
  const std::string summary = text_of(scratch_ / "run/summary.json");
  Running late(scratch_.path(), as_rank(1, 2, tests::free_port(15000), words));
  const Result result = late.finish();
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.errors, HasSubstr("prunex: the run in run is done"));
  EXPECT_EQ(text_of(scratch_ / "run/summary.json"), summary);
  const Result anew = run_program(scratch_.path(), words);
  EXPECT_EQ(anew.status, 2);
  EXPECT_THAT(anew.errors, HasSubstr("--run-dir"));
}

TEST_F(Elastic, RunsEndWhereFewerNodesAreLeftThanWanted) {
  const Result result = run_and(SIGKILL, {{3, 1}}, {"--nodes", "2", "--min-nodes", "2"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.errors, HasSubstr("1 of 2 nodes are left, fewer than --min-nodes 2"));
}

}  // namespace
}  // namespace prunex::cli
