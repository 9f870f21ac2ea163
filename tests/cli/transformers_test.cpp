// Transformers that lose heads and the inner widths of their perceptrons while they train.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tests/cli/command.h"
#include "tests/python.h"
#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using tests::text_of;

/// By group: kept units of all.
std::map<std::string, std::pair<size_t, size_t>> widths(const std::string& structure) {
  std::map<std::string, std::pair<size_t, size_t>> found;
  const json all = json::parse(structure);
  for (const json& group : all.at("groups")) {
    found[group.at("name")] = {group.at("kept").size(), group.at("size").get<size_t>()};
  }
  return found;
}

TEST(Transformers, LoseHeadsAndInnerWidthsWhileTheyTrain) {
  const tests::Scratch scratch;
  PRUNEX_RUN_PYTHON("tests/cli/vit.py", scratch / "vit.pt2");
  for (const std::string strategy : {"hsadmm", "diloco"}) {
    const std::string name = strategy + "-run";
    const Result trained = run(scratch.path(), {"train",
                                                "--model",
                                                "vit.pt2",
                                                "--samples",
                                                "80",
                                                "--nodes",
                                                "2",
                                                "--groups",
                                                "coupled-inner",
                                                "--heads",
                                                "--quiet",
                                                "--batch-size",
                                                "8",
                                                "--local-steps",
                                                "2",
                                                "--exchanges",
                                                "6",
                                                "--optimizer",
                                                "adamw",
                                                "--strategy",
                                                strategy,
                                                "--run-dir",
                                                name});
    ASSERT_EQ(trained.status, 0) << trained.errors;
    const json summary = json::parse(text_of(scratch / name + "/summary.json"));
    EXPECT_EQ(summary.at("accuracy"), summary.at("accuracy_compact"));
    const auto left = widths(text_of(scratch / name + "/structure.json"));
    for (const std::string layer : {"encoder.layers.encoder_layer_0", "encoder.layers.encoder_layer_1"}) {
      EXPECT_EQ(left.at(layer + ".self_attention"), std::pair(size_t{2}, size_t{4})) << strategy;
      EXPECT_EQ(left.at(layer + ".mlp.0"), std::pair(size_t{32}, size_t{64})) << strategy;
    }
  }
}

TEST(Transformers, AreWantedForHeads) {
  const tests::Scratch scratch;
  const Result none = run(scratch.path(), {"train", "--model", "resnet8", "--heads", "--check"});
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.errors, HasSubstr("--heads: --model resnet8 has no attention of several heads that could go"));
  const Result whole = run(scratch.path(), {"train", "--strategy", "ddp", "--heads", "--check"});
  EXPECT_EQ(whole.status, 2);
  EXPECT_THAT(whole.errors, HasSubstr("--heads: ddp has no masks"));
}

}  // namespace
}  // namespace prunex::cli
