// prunex plan against the bytes that runs count on other numbers of nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/command.h"
#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class PlanOfRuns : public testing::TestWithParam<std::vector<std::string>> {
 protected:
  /// 16 steps on so many nodes.
  void train(const std::string& nodes) {
    std::vector<std::string> words{"train",
                                   "--samples",
                                   "640",
                                   "--test-limit",
                                   "20",
                                   "--model",
                                   "resnet8",
                                   "--batch-size",
                                   "4",
                                   "--nodes",
                                   nodes,
                                   "--exchanges",
                                   "4",
                                   "--local-steps",
                                   "4",
                                   "--quiet",
                                   "--eval-every",
                                   "0",
                                   "--heartbeat-timeout",
                                   "60",
                                   "--run-dir",
                                   nodes};
    words.insert(words.end(), GetParam().begin(), GetParam().end());
    const Result trained = run(scratch_.path(), words);
    ASSERT_EQ(trained.status, 0) << trained.errors;
  }
  json read(const std::string& file) const { return json::parse(tests::text_of(scratch_ / file)); }
  const tests::Scratch scratch_;
};

TEST_P(PlanOfRuns, KnowsTheBytesOfFourNodesFromTwo) {
  train("2");
  train("4");
  const Result planned = run(scratch_.path(), {"plan", "--from", "2", "--nodes", "4", "--json", "plan.json"});
  ASSERT_EQ(planned.status, 0) << planned.errors;
  EXPECT_THAT(planned.output, HasSubstr("Weak scaling"));
  const json row = read("plan.json")["recommended"], counted = read("4/summary.json");
  const double predicted = row["bytes_per_node"].get<double>() / row["steps"].get<double>();
  const double sent = counted["inter_node_bytes"].get<double>() / counted["steps"].get<double>();
  EXPECT_NEAR(predicted / sent, 1, 0.015);
}

INSTANTIATE_TEST_SUITE_P(Strategies, PlanOfRuns,
                         testing::Values(std::vector<std::string>{"--strategy", "top_k"},
                                         std::vector<std::string>{"--strategy", "ddp", "--payload", "bf16"},
                                         std::vector<std::string>{"--strategy", "hsadmm", "--payload", "int4"}));

}  // namespace
}  // namespace prunex::cli
