// Whole runs of a few steps: what they leave, that they repeat, and that their numbers add up.
#include "prunex/train/trainer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "prunex/data/load.h"
#include "prunex/io/safetensors.h"
#include "prunex/program/pt2.h"
#include "prunex/train/evaluate.h"
#include "tests/scratch.h"
#include "tests/texts.h"
#include "tests/train/whole_runs.h"

namespace prunex::train {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::ThrowsMessage;
using tests::text_of;

/// 6 exchanges of 2 steps on 160 images; the masks freeze at the fourth.
TrainOptions evaluated_run(const std::string& run_dir) {
  TrainOptions options = tiny_run(160, 6);
  options.eval_every = 4;
  options.run_dir = run_dir;
  return options;
}

Summary run_on(TrainOptions options, int nodes, int ranks_per_node) {
  options.nodes = nodes;
  options.ranks_per_node = {ranks_per_node};
  return run_to_end(options);
}

void expect_files(const std::string& directory, const Summary& summary) {
  EXPECT_EQ(text_of(directory + "/config.toml"), kConfig);
  const json file = json::parse(text_of(directory + "/summary.json"));
  EXPECT_EQ(file["accuracy"], summary.accuracy);
  EXPECT_EQ(file["exchanges"], 6);
  EXPECT_EQ(lines_of(directory).size(), 6);
  EXPECT_TRUE(std::filesystem::exists(directory + "/model.safetensors"));
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    EXPECT_THAT(entry.path().filename().string(), testing::Not(HasSubstr("tmp")));
  }
}

/// The shipped program, read as a stranger would, on the whole test set.
void expect_shipped_accuracy(const TrainOptions& options, const Summary& summary) {
  const auto shipped = program::read_pt2(options.run_dir + "/model.pt2");
  const auto data = data::load_datasets(options.data);
  const double accuracy = evaluate(shipped.program, shipped.weights, data.test).accuracy;
  EXPECT_DOUBLE_EQ(summary.accuracy_compact, accuracy);
  EXPECT_NEAR(summary.accuracy, accuracy, 2e-4);
  const auto stored = io::read_safetensors(options.run_dir + "/model.safetensors").tensors;
  EXPECT_EQ(stored.size(), shipped.weights.params.size() + shipped.weights.buffers.size());
  for (const auto& item : shipped.weights.params) {
    EXPECT_TRUE(at::equal(stored[item.key()], item.value())) << item.key();
  }
}

TEST(Train, LeavesARunDirectoryOnOneAndOnTwoNodes) {
  for (const int nodes : {1, 2}) {
    const tests::Scratch scratch;
    const TrainOptions options = evaluated_run(scratch / "run");
    const Summary summary = run_on(options, nodes, 1);
    expect_files(options.run_dir, summary);
    expect_shipped_accuracy(options, summary);
    EXPECT_TRUE(summary.frozen);
    EXPECT_LT(summary.parameters_compact, summary.parameters_dense);
    EXPECT_LT(summary.macs_compact, summary.macs_dense);
    EXPECT_EQ(summary.parameters_dense, 78042);  // resnet8: 3-16-32-64 channels, 10 classes
  }
}

TEST(Train, RepeatsItselfButForTheSeconds) {
  const tests::Scratch scratch;
  for (const int ranks_per_node : {1, 2}) {
    const std::string suffix = std::to_string(ranks_per_node);
    run_on(evaluated_run(scratch / "first" + suffix), 2, ranks_per_node);
    run_on(evaluated_run(scratch / "second" + suffix), 2, ranks_per_node);
    const auto first = lines_without_seconds(scratch / "first" + suffix);
    EXPECT_EQ(first, lines_without_seconds(scratch / "second" + suffix));
    TrainOptions other = evaluated_run(scratch / "other" + suffix);
    other.seed = 1;
    run_on(other, 2, ranks_per_node);
    EXPECT_NE(first, lines_without_seconds(scratch / "other" + suffix));
  }
}

class TwoByTwo : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    scratch_ = std::make_unique<tests::Scratch>();
    TrainOptions options = evaluated_run(*scratch_ / "run");
    options.data.validation = 20;
    summary_ = run_on(options, 2, 2);
    lines_ = lines_of(options.run_dir);
  }
  static void TearDownTestSuite() { scratch_.reset(); }

  static inline std::unique_ptr<tests::Scratch> scratch_;
  static inline Summary summary_;
  static inline std::vector<json> lines_;
};

TEST_F(TwoByTwo, CountsStepsSamplesAndEpochs) {
  // 140 images without the validation ones: floor(140 / 32) = 4 steps per epoch
  for (size_t k = 0; k < lines_.size(); ++k) {
    EXPECT_EQ(lines_[k]["exchange"], k + 1);
    EXPECT_EQ(lines_[k]["step"], 2 * (k + 1));
    EXPECT_EQ(lines_[k]["samples"], 2 * (k + 1) * 32);
    EXPECT_EQ(lines_[k]["epoch"], 0.5 * static_cast<double>(k + 1));
    EXPECT_EQ(lines_[k].contains("accuracy"), k + 1 == 4 || k + 1 == 6) << k;
  }
  EXPECT_EQ(summary_.steps, 12);
  EXPECT_EQ(summary_.samples, 12 * 32);
  EXPECT_EQ(lines_.back()["accuracy"], summary_.accuracy);
  EXPECT_TRUE(summary_.validation_accuracy.has_value());
}

TEST_F(TwoByTwo, FreezesAfterHalfOfTheRun) {
  // k0 = 2, k1 = 3: exchange 1 keeps all, 3 is the last one with open masks
  EXPECT_EQ(lines_[0]["keep"], 1);
  for (size_t k = 0; k < 6; ++k) EXPECT_EQ(lines_[k]["frozen"], k >= 3) << k;
  for (size_t k = 3; k < 6; ++k) EXPECT_EQ(lines_[k]["mask_changes"], 0) << k;
  EXPECT_DOUBLE_EQ(lines_[5]["keep"], 0.5);  // blocks of 16, 32 and 64 channels
  EXPECT_GT(lines_[0]["rho1"], 0);
  EXPECT_EQ(lines_[4]["rho1"], 0);  // no duals after the freeze
  EXPECT_EQ(lines_[4]["residuals"]["r_intra"], 0);
}

TEST_F(TwoByTwo, ResidualsOfTensorsAndOfRanksAddUpToThoseOfAll) {
  for (const char* norm : {"r_intra", "s_intra", "r_inter", "s_inter"}) {
    const json& residuals = lines_[1]["residuals"];
    double tensors = 0, ranks = 0;
    for (const auto& [name, of] : residuals["by_tensor"].items()) tensors = std::hypot(tensors, of[norm].get<double>());
    for (const auto& of : residuals["by_rank"]) ranks = std::hypot(ranks, of[norm].get<double>());
    EXPECT_EQ(residuals["by_rank"].size(), 4);
    EXPECT_GT(residuals[norm], 0) << norm;
    EXPECT_NEAR(tensors / residuals[norm].get<double>(), 1, 1e-9) << norm;
    EXPECT_NEAR(ranks / residuals[norm].get<double>(), 1, 1e-9) << norm;
  }
  EXPECT_FALSE(lines_[4]["residuals"].contains("by_rank"));
}

TEST_F(TwoByTwo, ReportsBytesThatAddUpAndShrink) {
  int64_t inter = 0, intra = 0, bound = 0;
  for (const json& line : lines_) {
    inter += line["inter_node_bytes"].get<int64_t>();
    intra += line["intra_node_bytes"].get<int64_t>();
    bound += line["inter_node_bytes_bound"].get<int64_t>();
    // two nodes send the least possible together; node 0's half may differ by the rounding of chunks
    EXPECT_NEAR(line["inter_node_bytes"].get<double>(), line["inter_node_bytes_bound"].get<double>(), 4096);
  }
  EXPECT_EQ(inter, summary_.bytes.inter_node);
  EXPECT_EQ(intra, summary_.bytes.intra_node);
  EXPECT_EQ(bound, summary_.bytes.inter_node_bound);
  // dense exchange: weights and statistics in fp32, 8 bytes per unit of the three blocks' inner channels, and four
  // doubles for each tensor in ADMM: two convolutions and batch norm's two vectors per block
  const int64_t dense = 4 * (78042 + summary_.averaged_buffers) + 8 * (16 + 32 + 64) + 3 * 4 * 4 * 8;
  EXPECT_EQ(lines_[0]["inter_node_bytes_bound"], dense);
  EXPECT_LT(lines_[5]["inter_node_bytes"].get<double>(), 0.6 * static_cast<double>(dense));
}

TEST(Train, ExchangesDenselyWhatItCallsDense) {
  const tests::Scratch scratch;
  TrainOptions options = evaluated_run(scratch / "run");
  options.groups = "none";
  options.consensus.penalty.kappa = 0;
  options.after_freeze = strategies::AfterFreeze::kAverage;
  const Summary summary = run_on(options, 2, 1);
  EXPECT_EQ(summary.bytes.inter_node_bound, dense_exchange_bytes(summary));
  EXPECT_EQ(summary.parameters_compact, summary.parameters_dense);
  EXPECT_EQ(summary.macs_compact, summary.macs_dense);
  for (const json& line : lines_of(options.run_dir)) EXPECT_EQ(line["keep"], 1);
}

TEST(Train, PrunesEvenIfTheMasksNeverFroze) {
  const tests::Scratch scratch;
  TrainOptions options = evaluated_run(scratch / "run");
  options.freeze_after = strategies::kNever;
  const Summary summary = run_on(options, 1, 1);
  EXPECT_FALSE(summary.frozen);
  EXPECT_LT(summary.parameters_compact, 0.6 * static_cast<double>(summary.parameters_dense));
  expect_shipped_accuracy(options, summary);
}

TEST(Train, LearnsTheSameOnTheCutNetworkAsUnderMasks) {
  const tests::Scratch scratch;
  TrainOptions options = evaluated_run(scratch / "cut");
  const Summary cut = run_on(options, 2, 1);
  options.run_dir = scratch / "masked";
  options.shrink = false;
  const Summary masked = run_on(options, 2, 1);
  EXPECT_EQ(cut.parameters_compact, masked.parameters_compact);
  EXPECT_EQ(cut.macs_compact, masked.macs_compact);
  const auto ours = io::read_safetensors(scratch / "cut/model.safetensors").tensors;
  const auto theirs = io::read_safetensors(scratch / "masked/model.safetensors").tensors;
  ASSERT_EQ(ours.size(), theirs.size());
  for (const auto& item : ours) {  // sums over fewer channels round differently
    EXPECT_TRUE(at::allclose(item.value(), theirs[item.key()], 1e-3, 1e-4)) << item.key();
  }
  const auto small = lines_of(scratch / "cut"), large = lines_of(scratch / "masked");
  for (size_t k = 0; k < 6; ++k) {
    EXPECT_NEAR(small[k]["loss"].get<double>(), large[k]["loss"].get<double>(), 1e-4) << k;
    EXPECT_EQ(small[k]["parameters"] == cut.parameters_dense, k < 4) << k;
    EXPECT_EQ(large[k]["parameters"], masked.parameters_dense) << k;
  }
}

/// A batch is the same however ranks divide it, and so must be the length of its gradient.
TEST(Train, ClipsTheMeanOfAllRanksGradients) {
  const tests::Scratch scratch;
  std::vector<TensorDict> products;
  for (const int ranks : {1, 2}) {
    TrainOptions options = tiny_run(64, 3);
    options.strategy = "ddp";
    options.norm = models::Norm::kGroup;  // batch norm would see which images are together
    options.batch_size = 16 / ranks;
    options.clip_norm = 0.1;
    options.run_dir = scratch / std::to_string(ranks);
    run_on(options, ranks, 1);
    products.push_back(io::read_safetensors(options.run_dir + "/model.safetensors").tensors);
  }
  for (const auto& item : products[0]) {
    EXPECT_TRUE(at::allclose(item.value(), products[1][item.key()], 1e-4, 1e-5)) << item.key();
  }
}

TEST(Train, TracesThePhasesOfAllRanks) {
  const tests::Scratch scratch;
  auto options = evaluated_run(scratch / "run");
  options.trace = true;
  options.checkpoint_every = 3;
  run_on(options, 2, 2);
  const json trace = json::parse(text_of(scratch / "run/trace.json"));
  std::map<std::pair<int, int>, std::multiset<std::string>> names;  // by process and thread
  double last = 0;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    names[{event["pid"], event["tid"]}].insert(event["name"].get<std::string>());
    EXPECT_GE(event["dur"], 0);
    last = std::max(last, event["ts"].get<double>());
    if (event["name"] == "inter" && event["args"]["exchange"] == 1) {
      EXPECT_GT(event["args"]["bytes"], 0);
    }
  }
  EXPECT_GT(last, 0);
  ASSERT_EQ(names.size(), 4);
  for (const auto& [place, phases] : names) {
    EXPECT_EQ(place.first, place.second / 2);  // rank 3 is on node 1
    for (const char* each : {"local", "pack", "inter", "unpack", "dual"}) EXPECT_EQ(phases.count(each), 6) << each;
    for (const char* dense : {"intra", "project", "mask"}) EXPECT_EQ(phases.count(dense), 4) << dense;
    EXPECT_EQ(phases.count("checkpoint"), 2);
    EXPECT_EQ(phases.count("cut"), 1);
    EXPECT_EQ(phases.count("evaluate"), 3);  // exchanges 4 and 6, and the summary
  }
}

// 8 exchanges of which all but the first and the last travel beside two steps.
TEST(Train, TracesAnOverlappedExchangeFromWhereItLeaves) {
  const tests::Scratch scratch;
  auto options = evaluated_run(scratch / "run");
  options.strategy = "diloco";
  options.groups = "auto";
  options.local_steps = 3;
  options.overlap = 2;
  options.exchanges = 8;
  options.trace = true;
  run_on(options, 2, 1);
  struct Span {
    double begin = 0, end = 0;
  };
  std::map<std::pair<std::string, int>, Span> spans;  // of rank 0, by name and exchange
  const json trace = json::parse(text_of(scratch / "run/trace.json"));
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "X" || event["tid"] != 0) continue;
    const double begin = event["ts"];
    spans[{event["name"], event["args"]["exchange"]}] = {begin, begin + event["dur"].get<double>()};
  }
  for (int k = 1; k <= 8; ++k) {
    const Span local = spans.at({"local", k}), sent = spans.at({"inter", k});
    const bool beside = k > 1 && k < 8;
    EXPECT_EQ(sent.begin < local.end, beside) << k;
  }
}

TEST(Train, ReportsItsTrafficByOperation) {
  const tests::Scratch scratch;
  const Summary summary = run_on(evaluated_run(scratch / "run"), 2, 2);
  const json traffic = json::parse(text_of(scratch / "run/summary.json"))["traffic"];
  const json& rail = traffic["rail"]["all_reduce"];
  EXPECT_EQ(rail["sent_bytes"], summary.traffic.at("rail").bytes.sent);
  EXPECT_GT(rail["p99"], 0);
  EXPECT_GE(rail["p99"], rail["p50"]);
  EXPECT_GT(rail["busbw"], 0);
  EXPECT_TRUE(traffic["node"].contains("reduce_scatter"));
}

TEST(Train, RefusesADirectoryThatIsNotEmpty) {
  const tests::Scratch scratch;
  std::ofstream(scratch / "mine") << "precious";
  EXPECT_THAT([&] { run_on(evaluated_run(scratch.path()), 1, 1); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("`run_dir` " + scratch.path())));
  EXPECT_EQ(text_of(scratch / "mine"), "precious");
}

TEST(Train, StopsWithAHintWhenTheLossExplodes) {
  const tests::Scratch scratch;
  TrainOptions options = evaluated_run(scratch / "run");
  options.learning_rate = 1e20;
  EXPECT_THAT([&] { run_on(options, 1, 1); }, ThrowsMessage<std::runtime_error>(HasSubstr("try a lower `lr`")));
  options.run_dir = scratch / "again";
  options.exchanges = options.local_steps = 1;  // whose loss was that of before
  options.learning_rate = 1e30;
  EXPECT_THAT([&] { run_on(options, 1, 1); },
              ThrowsMessage<std::runtime_error>(HasSubstr("the loss on the test images is not finite")));
}

TEST(Train, RefusesOptionsOfAnotherLayout) {
  const tests::Scratch scratch;
  TrainOptions options = evaluated_run(scratch / "run");
  options.nodes = 2;
  comm::run_ranks(1, 1, [&](comm::Hierarchy& ranks) {
    EXPECT_THAT([&] { train(options, ranks, ""); }, ThrowsMessage<c10::Error>(HasSubstr("layout")));
  });
}

}  // namespace
}  // namespace prunex::train
