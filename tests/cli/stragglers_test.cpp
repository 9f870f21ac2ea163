// Nodes that are slow while a run trains: the others wait for what they have made, not for all of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/cli/command.h"
#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::cli {
namespace {

using nlohmann::json;
using tests::text_of;

TEST(Stragglers, ExchangeTheStepsThatTheyHaveMade) {
  const tests::Scratch scratch;
  Running training(scratch.path(),
                   prunex({"train",   "--nodes",      "2",         "--straggler-factor", "1.5",  "--strategy",
                           "diloco",  "--dataset",    "synthetic", "--samples",          "1280", "--model",
                           "resnet8", "--precision",  "fp32",      "--batch-size",       "8",    "--exchanges",
                           "12",      "--eval-every", "0",         "--local-steps",      "10",   "--run-dir",
                           "run"}));
  ASSERT_TRUE(training.wait_for("exchange 2/"));
  const int slow = training.children().at(1);
  // While it is the launcher's child, its number is no other process's; and who is stopped does not end.
  const auto trains = [&] {
    const auto ranks = training.children();
    return std::count(ranks.begin(), ranks.end(), slow) > 0 && tests::lines_written(scratch / "run/metrics.jsonl") < 12;
  };
  while (trains()) {  // a quarter of the time
    kill(slow, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    kill(slow, SIGCONT);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const Result result = training.finish();
  EXPECT_EQ(result.status, 0) << result.errors;
  const json summary = json::parse(text_of(scratch / "run/summary.json"));
  EXPECT_GT(summary.at("images_lost"), 0);
  EXPECT_EQ(summary.at("samples").get<int>() + summary.at("images_lost").get<int>(), 12 * 10 * 2 * 8);
  EXPECT_FALSE(summary.contains("nodes_lost"));
  EXPECT_EQ(summary.at("accuracy"), summary.at("accuracy_compact"));
}

}  // namespace
}  // namespace prunex::cli
