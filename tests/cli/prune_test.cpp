// prunex prune: what it writes, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/command.h"
#include "tests/image_files.h"
#include "tests/scratch.h"

namespace prunex::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

class Prune : public testing::Test {
 protected:
  Result prune(const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"prune", "--model", "resnet8", "--output", "out"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(scratch_.path(), arguments);
  }

  json read(const std::string& name) { return json::parse(std::ifstream(scratch_ / name)); }

  /// Exit code 2, one line with these words, nothing written.
  void refused(const std::vector<std::string>& more, const std::vector<std::string>& words) {
    const Result result = prune(more);
    SCOPED_TRACE(testing::PrintToString(more) + ": " + result.errors);
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.output, "");
    EXPECT_THAT(result.errors, StartsWith("prunex: "));
    EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1);
    for (const auto& word : words) EXPECT_THAT(result.errors, HasSubstr(word));
    EXPECT_TRUE(std::filesystem::is_empty(scratch_.path()));
  }

  const tests::Scratch scratch_;
};

TEST_F(Prune, TakesFilesWhoseNamesAreNotUtf8) {
  ASSERT_EQ(prune({"--ratio", "0.25"}).status, 0);
  std::filesystem::copy_file(scratch_ / "out/model.pt2", scratch_ / "a\xff.pt2");
  const Result result =
      run(scratch_.path(), {"prune", "--model", "a\xff.pt2", "--ratio", "0.5", "--output", "smaller"});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(read("smaller/report.json").at("model"), "a\xef\xbf\xbd.pt2");
}

TEST_F(Prune, MeetsALatencyThatItMeasures) {
  const Result met = prune({"--latency", "100000"});
  ASSERT_EQ(met.status, 0);
  EXPECT_THAT(met.errors, HasSubstr("prunex: warning: --latency 100000: the network takes "));
  EXPECT_EQ(read("out/report.json")["macs"]["after"], read("out/report.json")["macs"]["before"]);
  std::filesystem::remove_all(scratch_ / "out");
  double milliseconds = 64;  // less than the whole network needs, more than the smallest, which other work may change
  for (int tries = 0; tries < 40; ++tries) {
    const Result result = prune({"--latency", std::to_string(milliseconds), "--latency-batch", "32", "--global"});
    if (result.status != 0) {
      EXPECT_THAT(result.errors, HasSubstr("the fastest network tried took"));
      milliseconds *= 1.3;
      continue;
    }
    const json report = read("out/report.json");
    std::filesystem::remove_all(scratch_ / "out");
    if (report["macs"]["after"] < report["macs"]["before"]) {
      EXPECT_THAT(result.output, testing::ContainsRegex("latency +[0-9.]+ ms -> [0-9.]+ ms, a batch of 32"));
      return;
    }
    milliseconds /= 1.5;
  }
  FAIL() << "no network was cut down to " << milliseconds << " ms";
}

/// Tokens, and two inputs of which one is integers.
TEST_F(Prune, TimesNetworksOfAnyInputs) {
  for (const std::string name : {"embedding_linear", "integer_and_float_inputs"}) {
    const Result result = run(scratch_.path(), {"prune", "--model", PRUNEX_TEST_DATA "/prune/cases/" + name + ".pt2",
                                                "--output", name, "--latency", "1e6"});
    EXPECT_EQ(result.status, 0) << result.errors;
    EXPECT_GT(read(name + "/report.json")["latency"]["milliseconds_before"].get<double>(), 0);
  }
}

TEST_F(Prune, PredictWritesAllOutputsAndTakesOneInput) {
  tests::write_tensors(scratch_ / "x", {{"input", "F32", {2, 3, 6, 6}, std::string(864, '\0')}});
  const auto predict = [&](const std::string& name) {
    return run(scratch_.path(), {"predict", "--model", PRUNEX_TEST_DATA "/prune/cases/" + name + ".pt2", "--input", "x",
                                 "--output", "y"});
  };
  EXPECT_EQ(predict("two_outputs").errors, "");
  const std::string nan = std::string("\0\0\xC0\x7F", 4);
  tests::write_tensors(scratch_ / "x", {{"input", "F32", {2, 3, 6, 6}, nan + std::string(860, '\0')}});
  EXPECT_EQ(predict("two_outputs").errors, "prunex: warning: y: outputs that are not numbers\n");
  const std::string file = tests::text_of(scratch_ / "y");
  const json tensors = json::parse(file.substr(8, file.rfind('}') - 7));
  EXPECT_EQ(tensors["output"]["shape"], json({2, 3}));
  EXPECT_EQ(tensors["output_1"]["shape"], json({2, 2}));
  const Result refused = predict("two_inputs");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors, HasSubstr("two_inputs.pt2: takes 2 inputs, wanted one"));
}

TEST_F(Prune, WritesTheModelItsStructureAndAReport) {
  const Result result = prune({"--ratio", "0.5"});
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(result.errors, "");
  EXPECT_THAT(result.output, HasSubstr("parameters"));
  for (const char* name : {"out/model.pt2", "out/model.safetensors", "out/structure.json", "out/report.json"}) {
    EXPECT_TRUE(std::filesystem::exists(scratch_ / name)) << name;
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch_.path()), {}), 1);

  const json report = read("out/report.json"), structure = read("out/structure.json");
  EXPECT_EQ(report["parameters"]["before"], 78042);
  EXPECT_LT(report["macs"]["after"], report["macs"]["before"]);
  for (const json& layer : report["layers"]) {
    const bool classifier = layer["name"] == "fc";
    EXPECT_EQ(layer["done"].get<int>(), classifier ? 10 : layer["channels"].get<int>() / 2) << layer;
    EXPECT_EQ(layer["asked"], layer["done"]) << layer;
    const json& kept = structure["tensors"][layer["name"].get<std::string>() + ".weight"]["kept"];
    EXPECT_EQ(kept.contains("0") ? kept["0"].size() : layer["channels"].get<size_t>(), layer["done"]) << layer;
  }
  EXPECT_EQ(structure["model"], "resnet8");
  EXPECT_EQ(structure["input"], json({1, 3, 32, 32}));
  const json& skipped = report["not_pruned"];
  ASSERT_EQ(skipped.size(), 2u);  // the input and the logits
  for (const json& group : skipped) EXPECT_NE(group["reason"], "");
}

TEST_F(Prune, TakesAFixedBatchWhereItRunsNothing) {
  const std::string file = PRUNEX_TEST_DATA "/pt2/fixed_batch.pt2";
  EXPECT_EQ(run(scratch_.path(), {"graph", "--model", file}).status, 0);
  const Result timed = run(scratch_.path(), {"prune", "--model", file, "--output", "out", "--latency", "1"});
  EXPECT_NE(timed.status, 0);
  EXPECT_THAT(timed.errors, HasSubstr("fixed batch 1"));
  const Result result = run(scratch_.path(), {"prune", "--model", file, "--output", "out", "--ratio", "0.5"});
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_LT(read("out/report.json")["macs"]["after"], read("out/report.json")["macs"]["before"]);
}

TEST_F(Prune, MeetsASpeedUpInSteps) {
  ASSERT_EQ(prune({"--speed-up", "2.5", "--global", "--steps", "5"}).status, 0);
  const json macs = read("out/report.json")["macs"];
  const double reached = macs["before"].get<double>() / macs["after"].get<double>();
  EXPECT_GE(reached, 2.5);
  EXPECT_LT(reached, 2.6);
  const Result graph = run(scratch_.path(), {"graph", "--model", "out/model.pt2"});
  EXPECT_THAT(graph.output, HasSubstr(std::to_string(read("out/report.json")["parameters"]["after"].get<int>())));
}

TEST_F(Prune, TakesSharesAndCounts) {
  ASSERT_EQ(prune({"--parameters", "0.4"}).status, 0);
  EXPECT_LE(read("out/report.json")["parameters"]["after"], 78042 * 4 / 10);
  std::filesystem::rename(scratch_ / "out", scratch_ / "share");
  ASSERT_EQ(prune({"--parameters", "31216"}).status, 0);
  EXPECT_EQ(read("out/report.json")["plan"], read("share/report.json")["plan"]);
}

TEST_F(Prune, RanksByDataAndScoresTheResult) {
  const Result result = prune({"--macs", "0.6", "--importance", "taylor", "--importance-samples", "16", "--steps", "2",
                               "--dataset", "synthetic", "--samples", "100", "--test-limit", "20"});
  ASSERT_EQ(result.status, 0) << result.errors;
  const json accuracy = read("out/report.json")["accuracy"];
  for (const char* when : {"before", "after", "after_statistics"}) {
    EXPECT_GE(accuracy[when], 0) << when;
    EXPECT_LE(accuracy[when], 1) << when;
  }
}

TEST_F(Prune, SaysThatNothingWasCut) {
  const Result result = prune({"--ratio", "0"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.errors, "prunex: warning: --ratio 0: nothing was cut\n");
}

TEST_F(Prune, OfNetworksWithoutBatchNormEstimatesNoStatistics) {
  const std::vector<std::string> words{"prune",
                                       "--model",
                                       PRUNEX_TEST_DATA "/prune/cases/group_norm.pt2",
                                       "--ratio",
                                       "0.5",
                                       "--output",
                                       "out",
                                       "--dataset",
                                       "synthetic",
                                       "--estimate-statistics"};
  const Result refused = run(scratch_.path(), words);
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors, HasSubstr("--estimate-statistics: " PRUNEX_TEST_DATA));
  EXPECT_THAT(refused.errors, HasSubstr(" has no batch norm\n"));
}

TEST_F(Prune, PrunesAgainWhatItWrote) {
  ASSERT_EQ(prune({"--ratio", "0.25"}).status, 0);
  const Result result =
      run(scratch_.path(), {"prune", "--model", "out/model.pt2", "--ratio", "0.5", "--output", "twice"});
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(read("twice/report.json")["parameters"]["before"], read("out/report.json")["parameters"]["after"]);
}

TEST_F(Prune, RefusesWhatMakesNoSense) {
  refused({}, {"--ratio", "--macs", "--speed-up", "--latency", "got 0"});
  refused({"--latency", "-1"}, {"--latency: got -1", "above 0"});
  refused({"--latency", "0.000001"}, {"--latency 1e-06", "the fastest network tried took"});
  refused({"--ratio", "0.5", "--macs", "0.5"}, {"--ratio", "--macs", "got 2"});
  refused({"--ratio", "1.5"}, {"--ratio 1.5", "[0, 1]"});
  refused({"--speed-up", "0.5"}, {"--speed-up 0.5", "1 or more"});
  refused({"--macs", "-1"}, {"--macs -1"});
  refused({"--speed-up", "100000"}, {"--speed-up 100000: at least", "MACs are left"});
  refused({"--ratio", "0.5", "--statistics"}, {"--statistics: --model resnet8 has no units that stay because"});
  refused({"--ratio", "0.5", "--ignore", ","}, {"--ignore: got ','"});
  refused({"--ratio", "0.5", "--ignore", "fc,layer7*"}, {"--ignore layer7*", "no group or layer"});
  refused({"--ratio", "0.5", "--layer-ratio", "layer1.0"}, {"--layer-ratio: got layer1.0", "NAME=R"});
  refused({"--ratio", "0.5", "--layer-ratio", "layer1*=2"}, {"--layer-ratio layer1* 2", "[0, 1]"});
  refused({"--ratio", "0.5", "--max-ratio", "2"}, {"--max-ratio: got 2", "[0, 1]"});
  refused({"--ratio", "0.5", "--round-to", "0"}, {"--round-to: got 0"});
  refused({"--ratio", "0.5", "--steps", "0"}, {"--steps"});
  refused({"--ratio", "0.5", "--importance", "size"}, {"--importance", "size", "taylor"});
  refused({"--ratio", "0.5", "--importance", "hessian"}, {"--importance hessian", "--dataset"});
  refused({"--ratio", "0.5", "--estimate-statistics"}, {"--estimate-statistics", "--dataset"});
}

TEST_F(Prune, RefusesADirectoryThatIsNotEmpty) {
  std::filesystem::create_directory(scratch_ / "out");
  EXPECT_EQ(prune({"--ratio", "0.1"}).status, 0);  // empty
  const Result result = prune({"--ratio", "0.1"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors, HasSubstr("--output out: is not empty"));
}

}  // namespace
}  // namespace prunex::cli
