// Every strategy by name, in runs of a few steps: that it trains, counts, repeats and resumes, and what it refuses.
#include "prunex/train/strategy_choice.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <numeric>
#include <stdexcept>

#include "prunex/io/safetensors.h"
#include "prunex/models/models.h"
#include "prunex/program/builder.h"
#include "prunex/program/pt2.h"
#include "prunex/prune/training_groups.h"
#include "prunex/sparsity/projection.h"
#include "prunex/train/optimizer_choice.h"
#include "prunex/train/prepare.h"
#include "prunex/train/trainer.h"
#include "tests/scratch.h"
#include "tests/texts.h"
#include "tests/train/whole_runs.h"

namespace prunex::train {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using tests::text_of;

/// 4 exchanges of 2 steps.
TrainOptions small_run_of(const std::string& strategy) {
  TrainOptions options = tiny_run(64, 4);
  options.strategy = strategy;
  options.nodes = 2;
  return options;
}

/// On the same images; a node of two ranks is one worker.
TrainOptions small_run_of_workers(const std::string& strategy) {
  TrainOptions options = small_run_of(strategy);
  options.ranks_per_node = {2};
  options.batch_size /= 2;
  options.in_node = InNode::kGradients;
  return options;
}

Summary run_in(TrainOptions options, const std::string& directory) {
  (options.resume.empty() ? options.run_dir : options.resume) = directory;
  return run_to_end(options);
}

TEST(Strategies, AllTrainAndLeaveAModel) {
  const tests::Scratch scratch;
  for (const auto& name : strategy_names()) {
    const auto directory = scratch / name;
    const Summary summary = run_in(small_run_of(name), directory);
    EXPECT_EQ(summary.steps, 8) << name;
    EXPECT_GT(summary.bytes.inter_node, 0) << name;
    EXPECT_NEAR(summary.accuracy, summary.accuracy_compact, 2e-4) << name;
    EXPECT_TRUE(std::filesystem::exists(directory + "/model.pt2")) << name;
    const bool prunes = group_words(small_run_of(name)) != "none";
    EXPECT_EQ(summary.parameters_compact < summary.parameters_dense, prunes) << name;
  }
}

// Whole groups of the norm go: 4 channels at a time, half of each block's.
TEST(Strategies, CutNetworksWithGroupNorm) {
  const tests::Scratch scratch;
  TrainOptions options = small_run_of("hsadmm");
  options.norm = models::Norm::kGroup;
  const Summary summary = run_in(options, scratch / "run");
  EXPECT_EQ(summary.units_removed, 2 + 4 + 8);
  EXPECT_NEAR(summary.accuracy, summary.accuracy_compact, 2e-4);
  const auto weights = io::read_safetensors(scratch / "run/model.safetensors").tensors;
  EXPECT_EQ(weights["layer3.0.conv1.weight"].size(0), 32);
}

TEST(Strategies, DualsOfAWholeNetworkNeverEnd) {
  const tests::Scratch scratch;
  TrainOptions options = small_run_of("hsadmm");
  options.groups = "none";
  options.consensus.aux = strategies::AuxTensors::kAdmm;
  run_in(options, scratch / "run");
  const auto lines = lines_of(scratch / "run");
  ASSERT_EQ(lines.size(), 4);
  for (const auto& line : lines) {
    EXPECT_GT(line.at("rho1"), 0) << line;
    EXPECT_FALSE(line.at("frozen").get<bool>()) << line;
  }
}

TEST(Strategies, ADenseRunHasNoMasksThatWereFinal) {
  const tests::Scratch scratch;
  TrainOptions options = small_run_of("diloco");
  const Summary summary = run_in(options, scratch / "run");
  for (const auto& line : lines_of(scratch / "run")) EXPECT_FALSE(line.at("frozen").get<bool>()) << line;
  EXPECT_EQ(summary.samples_per_second_after_cut, 0);
}

// Whole networks on 2 x 2; beside the formulas' bytes a node sends but the progress report and norms.
TEST(Strategies, SendWhatThePreviewSays) {
  const std::vector<std::pair<std::string, std::function<void(TrainOptions&)>>> runs{
      {"local_sgd", [](auto&) {}},
      {"diloco", [](auto& o) { o.exchange.payload = strategies::Payload::kInt2; }},
      {"scaffold", [](auto&) {}},
      {"hsadmm", [](auto& o) { o.consensus.aux = strategies::AuxTensors::kAdmm; }},
      {"hsadmm_flat", [](auto& o) { o.consensus.aux = strategies::AuxTensors::kAdmm; }},
      {"ddp", [](auto&) {}},
      {"ddp", [](auto& o) { o.exchange.form = strategies::ExchangeForm::kFlat; }},
      {"top_k", [](auto& o) { o.top_k.density = 0.25; }}};
  for (const auto& [strategy, change] : runs) {
    const tests::Scratch scratch;
    TrainOptions options = tiny_run(160, 3);
    options.strategy = strategy;
    options.groups = "none";
    options.nodes = 2;
    options.ranks_per_node = {2};
    change(options);
    const auto said = static_cast<double>(check(options).exchange_bytes);
    const Summary summary = run_in(options, scratch / "run");
    const double sent = static_cast<double>(summary.bytes.inter_node) / static_cast<double>(summary.exchanges);
    EXPECT_NEAR(said, sent, 0.02 * sent) << strategy;
  }
}

TEST(Strategies, DualsOutliveACutThatLeavesOneChannel) {
  const tests::Scratch scratch;
  TrainOptions options = small_run_of("hsadmm");
  options.after_freeze = strategies::AfterFreeze::kAdmm;
  options.keep = 0.05;
  options.round_to = 1;
  EXPECT_EQ(run_in(options, scratch / "run").steps, 8);
  EXPECT_EQ(io::read_safetensors(scratch / "run/model.safetensors").tensors["layer1.0.conv1.weight"].size(0), 1);
}

// The outer step of H-SADMM begins with the first exchange, unless told otherwise.
TEST(Strategies, OuterStepsAreTheOnesAskedFor) {
  const tests::Scratch scratch;
  const auto loss = [&](const char* strategy, std::optional<int64_t> from, std::optional<double> momentum) {
    TrainOptions options = small_run_of(strategy);
    options.outer_from = from;
    options.outer_momentum = momentum;
    static int number = 0;
    const auto directory = scratch / std::to_string(number++);
    run_in(options, directory);
    return lines_of(directory).back()["loss"].get<double>();
  };
  EXPECT_EQ(loss("hsadmm", {}, {}), loss("hsadmm", 1, 0.8));
  EXPECT_NE(loss("hsadmm", {}, {}), loss("hsadmm", 0, 0.8));
  EXPECT_EQ(loss("diloco", {}, {}), loss("diloco", 1, 0.9));
  EXPECT_EQ(loss("diloco", {}, {}), loss("diloco", 0, {}));  // nothing freezes
  EXPECT_EQ(loss("local_sgd", {}, {}), loss("local_sgd", 0, 0.9));
  EXPECT_NE(loss("diloco", {}, {}), loss("local_sgd", {}, {}));
}

// Up to its cut it has the losses of local SGD, and keeps the largest units of its mean.
TEST(Strategies, OneShotIsLocalSgdUntilItKeepsTheLargestUnits) {
  const tests::Scratch scratch;
  TrainOptions options = small_run_of("one_shot");
  options.nodes = 1;
  options.ranks_per_node = {2};
  options.schedule = LearningRateSchedule::kConstant;
  run_in(options, scratch / "one_shot");
  options.strategy = "local_sgd";
  options.exchanges = 3;  // --prune-at 0.6 of 4 exchanges is 2: the third chooses and cuts
  run_in(options, scratch / "local_sgd");
  const auto cut = lines_of(scratch / "one_shot"), dense = lines_of(scratch / "local_sgd");
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(cut[i]["loss"], dense[i]["loss"].get<double>(), 1e-6) << i;

  const auto network = models::make_model("resnet8", {});
  const auto groups = prune::training_groups(network.program.graph(), "coupled-inner", 0.5);
  const auto mean = io::read_safetensors(scratch / "local_sgd/model.safetensors").tensors;
  const auto scores = sparsity::unit_scores(groups, mean);
  const auto structure = nlohmann::json::parse(text_of(scratch / "one_shot/structure.json"));
  std::map<std::string, std::vector<int64_t>> kept;
  for (const auto& group : structure["groups"]) kept[group["name"]] = group["kept"].get<std::vector<int64_t>>();
  for (size_t g = 0; g < groups.size(); ++g) {
    std::vector<int64_t> order(static_cast<size_t>(groups[g].size));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return scores[g][a].item<double>() > scores[g][b].item<double>(); });
    order.resize(order.size() / 2);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(kept[groups[g].name], order) << groups[g].name;
  }
}

TEST(Strategies, PruneTrainIsDdpWithALassoAndCuts) {
  const tests::Scratch scratch;
  TrainOptions options = small_run_of("prunetrain");
  options.pruning.below = 0.36;
  options.pruning.every = 1;
  run_in(options, scratch / "prunetrain");
  options.strategy = "ddp";
  options.sparse.penalty = "group_lasso";
  run_in(options, scratch / "ddp");
  EXPECT_EQ(lines_without_seconds(scratch / "prunetrain"), lines_without_seconds(scratch / "ddp"));
  EXPECT_EQ(text_of(scratch / "prunetrain/model.safetensors"), text_of(scratch / "ddp/model.safetensors"));
}

// 2 P (M-1)/M of what every exchange holds, where nodes that add up first send 2 (M-1)/M.
TEST(Strategies, HsadmmFlatSendsWhatTheFormulaSays) {
  const tests::Scratch scratch;
  TrainOptions options = small_run_of("hsadmm_flat");
  options.groups = "none";
  options.consensus.penalty.kappa = 0;
  options.ranks_per_node = {2};
  const auto flat = run_in(options, scratch / "flat").bytes.inter_node;
  options.strategy = "local_sgd";
  const auto of_nodes = run_in(options, scratch / "nodes").bytes.inter_node;
  EXPECT_NEAR(static_cast<double>(flat), 2 * static_cast<double>(of_nodes), 1024);
}

// Gradients of every step for ddp: the bytes are those that summary.json computes for it.
TEST(Strategies, DdpSendsWhatEverySummaryComputesForIt) {
  const tests::Scratch scratch;
  TrainOptions options = small_run_of("ddp");
  const Summary hierarchical = run_in(options, scratch / "hierarchical");
  EXPECT_NEAR(static_cast<double>(hierarchical.bytes.inter_node), static_cast<double>(ddp_bytes(hierarchical)), 1024);
  EXPECT_EQ(hierarchical.bytes.inter_node_bound, ddp_bytes(hierarchical));
  options.exchange.payload = strategies::Payload::kBf16;
  const Summary halved = run_in(options, scratch / "bf16");
  EXPECT_NEAR(static_cast<double>(halved.bytes.inter_node), static_cast<double>(ddp_bytes(halved)) / 2, 1024);
}

// resnet8: the weights twice, and batch norm's statistics.
TEST(Strategies, ScaffoldSendsTheNumberOfWeightsTwice) {
  const tests::Scratch scratch;
  const Summary summary = run_in(small_run_of("scaffold"), scratch / "run");
  EXPECT_EQ(summary.bytes.inter_node_bound, summary.exchanges * 4 * (2 * 78042 + summary.averaged_buffers));
}

TEST(Strategies, RoundedPayloadsSendFewerBytes) {
  const tests::Scratch scratch;
  TrainOptions options = small_run_of("diloco");
  const auto exact = static_cast<double>(run_in(options, scratch / "fp32").bytes.inter_node);
  options.exchange.payload = strategies::Payload::kInt4;
  EXPECT_LT(static_cast<double>(run_in(options, scratch / "int4").bytes.inter_node), exact / 7);
}

// 8 steps in exchanges of 2: the first and the last exchange are waited for.
TEST(Strategies, OverlapAllExchangesButTheFirstAndTheLast) {
  const tests::Scratch scratch;
  TrainOptions options = small_run_of("diloco");
  options.local_steps = 2;
  const auto waiting = run_in(options, scratch / "waiting");
  EXPECT_EQ(waiting.overlapped_steps, 0);
  options.overlap = 1;
  const auto overlapping = run_in(options, scratch / "overlapping");
  EXPECT_EQ(overlapping.overlapped_steps, 2);
  EXPECT_EQ(overlapping.exchanges, 4);
  EXPECT_EQ(overlapping.bytes.inter_node, waiting.bytes.inter_node);
  EXPECT_EQ(overlapping.samples, waiting.samples);
  std::vector<int64_t> steps;
  for (const auto& line : lines_of(scratch / "overlapping")) {
    steps.push_back(line.at("step"));
    EXPECT_EQ(line.at("samples"), steps.back() * waiting.samples / waiting.steps);
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{2, 5, 7, 8}));
}

// A run that was stopped two exchanges before its last ends with the same bits as one that was not.
TEST(Strategies, ResumeBitForBit) {
  const tests::Scratch scratch;
  std::vector<TrainOptions> runs;
  for (const auto* name : {"local_sgd", "diloco", "one_shot", "scaffold", "ddp", "top_k", "powersgd"})
    runs.push_back(small_run_of(name));
  runs.push_back(small_run_of("local_sgd"));
  runs.back().local_after = 1;
  runs.push_back(small_run_of("local_sgd"));
  runs.back().local_after = 3;
  runs.push_back(small_run_of("scaffold"));
  runs.back().local_after = 1;
  runs.back().exchange.payload = strategies::Payload::kBf16;
  runs.push_back(small_run_of("hsadmm"));
  runs.back().exchange.payload = strategies::Payload::kInt2;
  runs.push_back(small_run_of("diloco"));
  runs.back().groups = "coupled-inner";
  runs.back().exchange.payload = strategies::Payload::kInt4;
  runs.push_back(small_run_of("top_k"));
  runs.back().top_k.dgc = true;
  runs.back().top_k.density = 0.1;
  runs.push_back(small_run_of("prunetrain"));
  runs.back().pruning.below = 0.36;  // of random weights: high, so that something goes
  runs.back().pruning.every = 1;
  runs.push_back(small_run_of("hsadmm_flat"));
  runs.push_back(small_run_of("diloco"));
  runs.back().local_steps = 2;
  runs.back().overlap = 1;
  runs.back().exchange.payload = strategies::Payload::kInt4;
  runs.push_back(small_run_of("hsadmm"));
  runs.back().exchanges = 8;  // the later ones after the freeze
  runs.back().local_steps = 2;
  runs.back().overlap = 1;
  for (const auto* name : {"hsadmm", "scaffold"}) {
    runs.push_back(small_run_of_workers(name));
    runs.back().local_after = runs.back().strategy == "scaffold" ? 1 : 0;
  }
  runs.push_back(small_run_of_workers("diloco"));  // beside whose steps their exchanges travel
  runs.back().local_steps = 2;
  runs.back().overlap = 1;
  runs.back().exchange.payload = strategies::Payload::kInt4;
  for (size_t i = 0; i < runs.size(); ++i) {
    TrainOptions options = runs[i];
    options.checkpoint_every = 2;
    const auto whole = scratch / ("whole" + std::to_string(i)), resumed = scratch / ("resumed" + std::to_string(i));
    const Summary summary = run_in(options, whole);
    EXPECT_TRUE(options.overlap == 0 || summary.overlapped_steps > 0) << i;
    std::filesystem::copy(whole, resumed, std::filesystem::copy_options::recursive);
    std::filesystem::remove(resumed + "/model.safetensors");
    options.resume_exchange = options.exchanges - 2;
    options.resume = resumed;
    run_in(options, resumed);
    EXPECT_EQ(text_of(whole + "/model.safetensors"), text_of(resumed + "/model.safetensors"))
        << i << " " << options.strategy;
  }
}

// A node of two ranks is a worker: it moves its gradients in every step, and nothing more leaves it.
TEST(Strategies, NodesMayBeWorkersOfSeveralRanks) {
  const tests::Scratch scratch;
  TrainOptions options = small_run_of_workers("diloco");
  options.groups = "coupled-inner";
  options.exchange.payload = strategies::Payload::kInt4;
  options.in_node = InNode::kWeights;
  const Summary apart = run_in(options, scratch / "apart");
  options.in_node = InNode::kGradients;
  const Summary worker = run_in(options, scratch / "worker");
  EXPECT_EQ(worker.bytes.inter_node, apart.bytes.inter_node);
  EXPECT_LT(worker.parameters_compact, worker.parameters_dense);
  // all-reduces of two ranks: each sends its half of the sum and of the result
  const auto lines = lines_of(scratch / "worker");
  int64_t gradients = 0, step = 0;
  for (const auto& line : lines) {
    gradients += 8 * line.at("parameters").get<int64_t>() * (line.at("step").get<int64_t>() - step);
    step = line.at("step");
  }
  EXPECT_EQ(worker.bytes.intra_node - apart.bytes.intra_node, gradients);
}

TEST(Strategies, ExchangesOfWorkersTravelBesideTheirSteps) {
  const tests::Scratch scratch;
  TrainOptions options = small_run_of_workers("diloco");
  options.local_steps = 2;
  const Summary waiting = run_in(options, scratch / "waiting");
  options.overlap = 1;
  const Summary overlapping = run_in(options, scratch / "overlapping");
  EXPECT_EQ(overlapping.overlapped_steps, 2);
  EXPECT_EQ(overlapping.samples, waiting.samples);
  EXPECT_EQ(overlapping.bytes.inter_node, waiting.bytes.inter_node);
  EXPECT_EQ(overlapping.bytes.intra_node, waiting.bytes.intra_node);
}

TEST(Strategies, PruneByThemselvesOrWhenTold) {
  TrainOptions options;
  EXPECT_EQ(group_words(options), "coupled-inner");
  options.strategy = "diloco";
  EXPECT_EQ(group_words(options), "none");
  options.groups = "coupled";
  EXPECT_EQ(group_words(options), "coupled");
}

TEST(Strategies, WhatGetsNoGradientStaysAsItIs) {
  const tests::Scratch scratch;
  program::Builder builder(3);
  auto x = builder.mean(builder.conv2d("conv", builder.input("x", {3, 32, 32}), {.out = 4, .kernel = 3}), {2, 3});
  x = builder.call("aten::detach", {program::Builder::tensor("self", x)}, builder.shape(x));
  const program::Model model = std::move(builder).finish(builder.linear("fc", x, {.out = 10}));
  program::write_pt2(scratch / "net.pt2", model);
  for (const char* strategy : {"ddp", "powersgd", "top_k", "local_sgd"}) {
    TrainOptions options = small_run_of(strategy);
    options.model = scratch / "net.pt2";
    options.weight_decay = 0.5;
    run_in(options, scratch / strategy);
    const auto trained = io::read_safetensors(scratch / (std::string(strategy) + "/model.safetensors")).tensors;
    EXPECT_TRUE(at::equal(trained["conv.weight"], model.weights.params["conv.weight"])) << strategy;
    EXPECT_FALSE(at::equal(trained["fc.weight"], model.weights.params["fc.weight"])) << strategy;
  }
}

TEST(Strategies, MomentumIsDgcsWhereThereIsDgc) {
  TrainOptions options = small_run_of("top_k");
  EXPECT_EQ(optimizer_of(options).momentum, 0.9);
  const Phase phase{.name = "train", .steps = 8, .learning_rate = 0.1, .weight_decay = 0.5};
  EXPECT_EQ(optimizer_at(options, phase, 1).weight_decay, 0.5);
  options.top_k.dgc = true;
  EXPECT_EQ(optimizer_of(options).momentum, 0);
  EXPECT_NEAR(optimizer_at(options, phase, 1).weight_decay, 5, 1e-12) << "momentum 0.9 repeats it ten times";
}

void expect_refused(const std::string& strategy, const std::function<void(TrainOptions&)>& change,
                    const std::string& message) {
  TrainOptions options = small_run_of(strategy);
  change(options);
  EXPECT_THAT([&] { validate(options); }, ThrowsMessage<std::invalid_argument>(HasSubstr(message))) << message;
}

TEST(Strategies, RefuseWhatTheyDoNotHave) {
  using strategies::ExchangeForm;
  using strategies::Payload;
  expect_refused(
      "dpp", [](auto&) {}, "`strategy`: got 'dpp', wanted one of hsadmm,");
  expect_refused(
      "ddp", [](auto& o) { o.groups = "coupled"; }, "`groups`: got coupled, ddp has no masks");
  expect_refused(
      "ddp", [](auto& o) { o.local_after = 2; }, "`local_after`: ddp never stops");
  expect_refused(
      "ddp", [](auto& o) { o.exchange.payload = Payload::kInt4; }, "`payload`: got int4, ddp has");
  expect_refused(
      "scaffold", [](auto& o) { o.groups = "coupled"; }, "`groups`: got coupled, scaffold has no masks");
  expect_refused(
      "scaffold", [](auto& o) { o.exchange.payload = Payload::kInt8; }, "`payload`: got int8, scaffold has fp32, bf16");
  expect_refused(
      "top_k", [](auto& o) { o.exchange.payload = Payload::kBf16; }, "`payload`: got bf16, top_k has fp32");
  expect_refused(
      "top_k", [](auto& o) { o.top_k.density = 0; }, "`density`: got 0, wanted a share in (0, 1]");
  expect_refused(
      "powersgd", [](auto& o) { o.powersgd.rank = 0; }, "`powersgd_rank`: got 0");
  expect_refused(
      "hsadmm", [](auto& o) { o.exchange.form = ExchangeForm::kFlat; }, "`exchange`: got flat");
  expect_refused(
      "diloco", [](auto& o) { o.in_node = InNode::kGradients, o.overlap = 1, o.nodes = 1; },
      "`overlap`: got one beside `in_node` gradients of a single node");
  expect_refused(
      "scaffold", [](auto& o) { o.in_node = InNode::kGradients, o.elastic = true; }, "`in_node`: got gradients beside");
  expect_refused(
      "one_shot", [](auto& o) { o.prune_at = 1; }, "`prune_at`: got 1, wanted a share in (0, 1)");
  expect_refused(
      "hsadmm", [](auto& o) { o.groups = "none"; }, "`groups`: got none, which leaves hsadmm no tensor to pull");
  expect_refused(
      "hsadmm_flat", [](auto& o) { o.exchange.payload = Payload::kInt8; }, "`payload`: got int8, hsadmm_flat has fp32");
  expect_refused(
      "hsadmm", [](auto& o) { o.sites = 2, o.exchange.payload = Payload::kInt8; }, "between sites fp32 alone");
}

TEST(Strategies, WithoutGroupsHsadmmNeedsAllTensorsInAdmmOrNone) {
  TrainOptions options = small_run_of("hsadmm");
  options.groups = "none";
  options.consensus.aux = strategies::AuxTensors::kAdmm;
  EXPECT_NO_THROW(validate(options));
  options.consensus = {.penalty = {.kappa = 0}};
  EXPECT_NO_THROW(validate(options));
}

}  // namespace
}  // namespace prunex::train
