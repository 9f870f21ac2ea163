// Runs of several phases: sparse training, cuts to a target, fine-tuning; with every strategy, and resumed.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "prunex/data/load.h"
#include "prunex/io/safetensors.h"
#include "prunex/program/builder.h"
#include "prunex/train/evaluate.h"
#include "prunex/train/product.h"
#include "prunex/train/pruning/pruning.h"
#include "prunex/train/strategy_choice.h"
#include "prunex/train/trainer.h"
#include "tests/scratch.h"
#include "tests/texts.h"
#include "tests/train/small_network.h"
#include "tests/train/whole_runs.h"

namespace prunex::train {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using tests::message;
using tests::text_of;

/// 4 steps in 2 exchanges, 4 of sparse training, 6 of fine-tuning with two cuts.
TrainOptions phases(const std::string& strategy) {
  TrainOptions options = tiny_run(64, 0);
  options.strategy = strategy;
  options.groups = "none";
  options.consensus.aux = strategies::AuxTensors::kAdmm;
  options.data.validation = 16;
  options.epochs = 4.0 / 3;  // 48 images: 3 steps
  options.eval_every = 1;
  options.checkpoint_every = 1;
  options.nodes = 2;
  options.sparse.penalty = "group_norm";
  options.sparse.epochs = 4.0 / 3;
  options.sparse.strength = 0.01;
  options.finetune.epochs = 2;
  options.finetune.learning_rate = 0.01;
  options.pruning.target = "speed-up=2.11";
  options.pruning.steps = 2;
  return options;
}

Summary run_phases(TrainOptions options, const std::string& directory, int64_t from = 0) {
  (from == 0 ? options.run_dir : options.resume) = directory;
  options.resume_exchange = from;
  return run_to_end(options);
}

TEST(Phases, FollowEachOtherWithTheirOwnRates) {
  TrainOptions options = phases("ddp");
  options.weight_decay = 0.3;
  options.schedule = LearningRateSchedule::kConstant;
  options.sparse.schedule = LearningRateSchedule::kStep;
  const RunLength length = run_length(options, 48);
  ASSERT_EQ(length.phases.size(), 3);
  EXPECT_EQ(length.steps, 14);
  EXPECT_EQ(length.exchanges, 7);
  const std::vector<std::string> names{"train", "sparse", "finetune"};
  const std::vector<int64_t> ends{4, 8, 14};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(length.phases[i].name, names[i]);
    EXPECT_EQ(length.phases[i].end(), ends[i]);
    EXPECT_EQ(length.phases[i].weight_decay, i == 1 ? 0 : 0.3);
  }
  const std::vector<double> want{0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.01, 0.001, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01};
  for (size_t i = 0; i < want.size(); ++i) {
    const auto step = static_cast<int64_t>(i) + 1;
    EXPECT_NEAR(learning_rate_at(length.phase_of(step), step), want[i], 1e-12) << step;
  }
  EXPECT_EQ(first_cut(options, length), 4);
  options.finetune.epochs = 0;
  EXPECT_EQ(first_cut(options, run_length(options, 48)), 3);  // 0.6 of 8 steps
}

/// 0.55 x 100 is a little more than 55 in doubles.
TEST(Phases, CutsComeAfterTheExchangeThatTheirShareSays) {
  TrainOptions options = phases("diloco");
  options.finetune.epochs = options.sparse.epochs = options.epochs = 0;
  options.exchanges = 20;
  options.local_steps = 5;
  for (int64_t exchange = 1; exchange <= 20; ++exchange) {
    options.prune_at = static_cast<double>(exchange) / 20;
    EXPECT_EQ(first_cut(options, run_length(options, 48)), exchange);
  }
}

TEST(Phases, GoOnUntilTheExchangeWithWhichFineTuningBegins) {
  TrainOptions options = phases("diloco");
  options.local_steps = 3;
  const RunLength length = run_length(options, 48);
  EXPECT_EQ(length.phases[0].end(), 4);
  EXPECT_EQ(length.phases[1].end(), 9);  // 8 without cuts
  EXPECT_EQ(length.phases[2].end(), 15);
  EXPECT_EQ(first_cut(options, length), 3);
  options.overlap = 2;  // and lands
  EXPECT_EQ(run_length(options, 48).phases[1].end(), 11);
  EXPECT_EQ(first_cut(options, run_length(options, 48)), 3);
  options.local_after = 2;  // the first exchange of weights is waited for
  EXPECT_EQ(run_length(options, 48).phases[1].end(), 9);
  EXPECT_EQ(first_cut(options, run_length(options, 48)), 3);
  options.local_after = 0;
  options.overlap = 0;
  options.local_steps = 9;  // nothing was exchanged before
  EXPECT_EQ(run_length(options, 48).phases[1].end(), 8);
  options.local_steps = 3;
  options.pruning.target.clear();
  EXPECT_EQ(run_length(options, 48).phases[1].end(), 8);
}

class OfStrategy : public testing::TestWithParam<const char*> {};

TEST_P(OfStrategy, MeetTheTargetAndGoOnToTheBit) {
  const tests::Scratch scratch;
  const std::string directory = scratch / "run";
  TrainOptions options = phases(GetParam());
  options.checkpoint_every = 3;
  const Summary summary = run_phases(options, directory);
  const auto lines = lines_without_seconds(directory);
  ASSERT_TRUE(summary.pruned);
  EXPECT_EQ(summary.pruned->exchange, 5);
  EXPECT_GE(static_cast<double>(summary.macs_dense), 2.11 * static_cast<double>(summary.macs_compact));
  EXPECT_LT(static_cast<double>(summary.macs_dense), 2.2 * static_cast<double>(summary.macs_compact));
  EXPECT_LT(lines[4]["macs"], lines[3]["macs"]);  // half of the way
  EXPECT_LT(lines[5]["macs"], lines[4]["macs"]);
  EXPECT_EQ(lines[5]["macs"], summary.macs_compact);
  EXPECT_EQ(lines[3]["phase"], "sparse");
  EXPECT_EQ(lines[4]["phase"], "finetune");
  ASSERT_TRUE(summary.best);
  EXPECT_GT(summary.best->exchange, 5);
  EXPECT_NEAR(summary.accuracy, summary.accuracy_compact, 2e-4);

  const auto product = io::read_safetensors(directory + "/model.safetensors").tensors;
  const auto expect_same_from = [&](const std::string& resumed, int64_t exchange) {
    const Summary again = run_phases(options, resumed, exchange);
    EXPECT_EQ(lines_without_seconds(resumed), lines) << exchange;
    EXPECT_EQ(again.pruned->accuracy_before, summary.pruned->accuracy_before);
    for (const auto& item : io::read_safetensors(resumed + "/model.safetensors").tensors) {
      ASSERT_TRUE(at::equal(item.value(), product[item.key()])) << item.key();
    }
  };
  expect_same_from(directory, 6);  // after both cuts
  expect_same_from(directory, 3);  // in sparse training
  options.checkpoint_every = 5;
  run_phases(options, scratch / "other");
  expect_same_from(scratch / "other", 5);  // between the cuts
}

INSTANTIATE_TEST_SUITE_P(Phases, OfStrategy,
                         testing::Values("ddp", "top_k", "powersgd", "local_sgd", "diloco", "scaffold", "hsadmm"),
                         [](const auto& info) { return std::string(info.param); });

/// Residues of rounding are cut, too; the first exchanges are another strategy's.
TEST(Phases, RoundedAndPostLocalRunsGoOnToTheBit) {
  for (const int64_t from : {6, 3}) {
    const tests::Scratch scratch;
    TrainOptions options = phases("local_sgd");
    options.exchange.payload = strategies::Payload::kInt4;
    options.local_after = 2;
    options.checkpoint_every = 3;
    run_phases(options, scratch / "run");
    const auto lines = lines_without_seconds(scratch / "run");
    run_phases(options, scratch / "run", from);
    EXPECT_EQ(lines_without_seconds(scratch / "run"), lines) << from;
  }
}

// Rows are shared out as the network is when weights are first exchanged: after the cut.
TEST(Phases, PostLocalRunsThatWereCutBeforeTheyChangedGoOnToTheBit) {
  for (const std::string strategy : {"diloco", "hsadmm", "scaffold"}) {
    const tests::Scratch scratch;
    TrainOptions options = tiny_run(160, 0);
    options.strategy = strategy;
    options.groups = "none";
    options.consensus.aux = strategies::AuxTensors::kAdmm;
    options.exchange.payload = strategy == "scaffold" ? strategies::Payload::kFp16 : strategies::Payload::kInt2;
    options.nodes = 2;
    options.ranks_per_node = {2};
    options.local_after = 2;
    options.epochs = 0;
    options.finetune.epochs = 3;
    options.pruning.target = "macs=0.5";
    options.checkpoint_every = 3;
    run_phases(options, scratch / "run");
    const auto lines = lines_without_seconds(scratch / "run");
    ASSERT_GT(lines.size(), 6);
    run_phases(options, scratch / "run", 6);
    EXPECT_EQ(lines_without_seconds(scratch / "run"), lines) << strategy;
  }
}

TEST(Phases, SparseTrainingChangesTheWeightsThatRanksShare) {
  const tests::Scratch scratch;
  TrainOptions with = phases("local_sgd");
  with.pruning = {};
  with.finetune.epochs = 0;
  TrainOptions without = with;
  without.sparse.strength = 1e-300;
  run_phases(with, scratch / "with");
  run_phases(without, scratch / "without");
  const auto a = lines_without_seconds(scratch / "with"), b = lines_without_seconds(scratch / "without");
  ASSERT_EQ(a.size(), 4);
  EXPECT_EQ(a[1], b[1]);
  EXPECT_NE(a[3]["loss"], b[3]["loss"]);
}

TEST(Phases, StructureJsonHoldsAllCutsAtOnce) {
  const tests::Scratch scratch;
  const std::string directory = scratch / "run";
  const TrainOptions options = phases("ddp");
  const Summary summary = run_phases(options, directory);
  const auto structure = parse_structure(text_of(directory + "/structure.json"));
  const auto product = io::read_safetensors(directory + "/model.safetensors").tensors;
  for (const auto& [name, cut] : structure.cut.tensors) {
    EXPECT_EQ(product[name].sizes().vec(), sparsity::shape_after(cut)) << name;
  }
  EXPECT_GT(summary.units_removed, 0);
}

TEST(PruneTrain, CutsWhatIsSmallAllThroughTraining) {
  const tests::Scratch scratch;
  TrainOptions options = phases("prunetrain");
  options.sparse = {};
  options.finetune = {};
  options.pruning = {};
  options.epochs = 4;
  options.pruning.below = 0.36;  // of random weights: high, so that something goes
  const Summary summary = run_phases(options, scratch / "run");
  EXPECT_LT(summary.macs_compact, summary.macs_dense);
  EXPECT_NEAR(summary.accuracy, summary.accuracy_compact, 2e-4);
  const auto lines = lines_without_seconds(scratch / "run");
  EXPECT_LE(lines.back()["inter_node_bytes"], lines.front()["inter_node_bytes"]);
  const TrainOptions defaults = with_defaults(options);
  EXPECT_EQ(defaults.sparse.penalty, "group_lasso");
  TrainOptions local = options;
  local.strategy = "local_sgd";
  local.sparse.penalty = "group_lasso";
  EXPECT_LT(run_phases(local, scratch / "local").macs_compact, summary.macs_dense);
}

TEST(Phases, SpeedsAreThoseOfTheWholeNetworkUntilSomethingGoes) {
  const tests::Scratch scratch;
  TrainOptions options = phases("local_sgd");
  options.sparse = {};
  options.sparse.penalty = "group_lasso";
  options.finetune = {};
  options.pruning = {};
  options.epochs = 4;
  options.pruning.below = 1e-30;
  const Summary summary = run_phases(options, scratch / "run");
  EXPECT_EQ(summary.macs_compact, summary.macs_dense);
  EXPECT_GT(summary.samples_per_second_before_cut, 0);
  EXPECT_EQ(summary.samples_per_second_after_cut, 0);
}

TEST(Phases, WithoutTrainingTheCutComesFirst) {
  const tests::Scratch scratch;
  TrainOptions options = phases("ddp");
  options.epochs = 0;
  options.sparse = {};
  options.pruning.steps = 1;
  const Summary summary = run_phases(options, scratch / "run");
  EXPECT_EQ(summary.pruned->exchange, 0);
  EXPECT_EQ(lines_without_seconds(scratch / "run").front()["macs"], summary.macs_compact);
  EXPECT_LT(summary.macs_compact, summary.macs_dense);
}

TEST(Phases, EvidenceFromDataRanksUnitsToo) {
  const tests::Scratch scratch;
  TrainOptions options = phases("local_sgd");
  options.pruning.importance = "taylor";
  options.pruning.importance_samples = 16;
  options.pruning.every = 0;
  const Summary summary = run_phases(options, scratch / "run");
  EXPECT_EQ(summary.pruned->exchange, 4);
  EXPECT_GE(static_cast<double>(summary.macs_dense), 2.11 * static_cast<double>(summary.macs_compact));
}

// Shares and limits are those of the whole network, not of what the cuts before have left.
TEST(Phases, SeveralCutsMeetASharePerGroup) {
  for (const prune::Scope scope : {prune::Scope::kLocal, prune::Scope::kGlobal}) {
    const tests::Scratch scratch;
    TrainOptions options = phases("ddp");
    options.pruning.target = "ratio=0.5";
    options.pruning.steps = 3;
    options.pruning.plan.scope = scope;
    options.pruning.plan.limits.max_ratio = scope == prune::Scope::kLocal ? 1 : 0.55;
    run_phases(options, scratch / "run");
    int64_t units = 0, kept = 0;
    for (const auto& group : parse_structure(text_of(scratch / "run/structure.json")).cut.groups) {
      const auto left = static_cast<int64_t>(group.kept.size());
      if (scope == prune::Scope::kLocal) {
        EXPECT_EQ(left, (group.size + 1) / 2) << group.name;
      }
      EXPECT_GE(static_cast<double>(left), 0.45 * static_cast<double>(group.size)) << group.name;
      units += group.size, kept += left;
    }
    EXPECT_EQ(kept, (units + 1) / 2);
  }
}

TEST(Phases, ResidualsEndNoRunThatIsYetToBeCut) {
  const tests::Scratch scratch;
  TrainOptions options = phases("hsadmm");
  options.consensus.tolerance = 1e9;
  options.pruning.steps = 1;
  const Summary summary = run_phases(options, scratch / "run");
  ASSERT_TRUE(summary.pruned);
  EXPECT_EQ(summary.pruned->exchange, 4);
  EXPECT_TRUE(summary.converged);
  EXPECT_EQ(lines_of(scratch / "run").back()["phase"], "finetune");
}

// Exchanges after 50 steps; the phase lies between two of them.
TEST(Phases, SparseTrainingActsInAPhaseWithinAnInterval) {
  const auto model = small_network();
  TrainOptions options;
  options.local_steps = 50;
  options.sparse.penalty = "group_norm";
  options.sparse.epochs = 1;
  RunLength length{.steps_per_epoch = 20, .steps = 150, .exchanges = 3};
  length.phases = {{.name = "train", .steps = 60},
                   {.name = "sparse", .begin = 60, .steps = 20},
                   {.name = "finetune", .begin = 80, .steps = 70}};
  SparseTraining sparse(options, length, model.program, kClasses);
  for (int64_t exchange : {0, 1}) sparse.refresh(model.weights, exchange, exchange * options.local_steps);
  TensorDict params;
  for (const auto& item : model.weights.params) {
    params.insert(item.key(), item.value().detach().clone().set_requires_grad(true));
  }
  for (auto& item : params) item.value().mutable_grad() = at::zeros_like(item.value());
  const auto sum = [&params] {
    double all = 0;
    for (const auto& item : params) all += item.value().grad().abs().sum().item<double>();
    return all;
  };
  sparse.add_to_gradients(params, 60);
  EXPECT_EQ(sum(), 0);
  sparse.add_to_gradients(params, 61);
  EXPECT_GT(sum(), 0);
}

TEST(Phases, SparseTrainingActsFromItsFirstStepHoweverRarelyItIsRefreshed) {
  const tests::Scratch scratch;
  TrainOptions options = phases("ddp");
  options.sparse.refresh_every = 100;
  run_phases(options, scratch / "sparse");
  options.sparse.strength = 1e-12;
  run_phases(options, scratch / "dense");
  const auto sparse = lines_without_seconds(scratch / "sparse"), dense = lines_without_seconds(scratch / "dense");
  EXPECT_EQ(sparse[1]["loss"], dense[1]["loss"]);
  EXPECT_NE(sparse[3]["loss"], dense[3]["loss"]);
}

// The second exchange is over 20 steps into the interval after it, and it is only there that coefficients are looked at
// again: the phase begins before.
TEST(Phases, SparseTrainingActsFromItsFirstStepBesideOverlappedExchanges) {
  const auto model = small_network();
  TrainOptions options;
  options.local_steps = 50;
  options.overlap = 20;
  options.sparse.penalty = "group_norm";
  options.sparse.epochs = 1;
  RunLength length{.steps_per_epoch = 100, .steps = 200, .exchanges = 4};
  length.phases = {{.name = "train", .steps = 110}, {.name = "sparse", .begin = 110, .steps = 90}};
  SparseTraining sparse(options, length, model.program, kClasses);
  sparse.refresh(model.weights, 1, 50);
  TensorDict params = model.weights.params;
  for (auto& theta : params) theta.value().mutable_grad() = at::zeros_like(theta.value());
  sparse.add_to_gradients(params, 111);
  double added = 0;
  for (const auto& theta : params) added += theta.value().grad().abs().sum().item<double>();
  EXPECT_GT(added, 0);
}

// Exchanges after 50 steps; the phase ends after 60, in the middle of an interval.
TEST(Phases, GrowingPenaltiesGrowUntilTheirPhaseEnds) {
  const auto model = small_network();
  TrainOptions options;
  options.local_steps = 50;
  options.sparse.penalty = "growing";
  RunLength length{.steps_per_epoch = 100, .steps = 200, .exchanges = 4};
  length.phases = {{.name = "train", .steps = 60}, {.name = "finetune", .begin = 60, .steps = 140}};
  SparseTraining sparse(options, length, model.program, kClasses);
  const auto refreshed = [&](int64_t exchange) {
    sparse.refresh(model.weights, exchange, exchange * options.local_steps);
    TensorDict state;
    sparse.save(state);
    for (auto& item : state) item.value() = item.value().clone();
    return state;
  };
  const TensorDict begin = refreshed(0), last = refreshed(1);
  double growth = 0;
  for (const auto& item : begin) growth += (last[item.key()] - item.value()).abs().sum().item<double>();
  EXPECT_GT(growth, 0);
}

// conv2 has no batch norm, so that its units cannot go by scales.
TEST(Phases, RefuseATargetThatTheImportanceCannotReach) {
  program::Builder builder(3);
  auto x = builder.input("x", {3, kSide, kSide});
  x = builder.batch_norm("bn1", builder.conv2d("conv1", x, {.out = 6, .kernel = 3, .padding = 1}));
  x = builder.conv2d("conv2", builder.relu(x), {.out = 60, .kernel = 3, .padding = 1});
  const auto model = std::move(builder).finish(builder.linear("fc", builder.mean(x, {2, 3}), {.out = kClasses}));
  const auto refusal = [&](const std::string& importance) {
    TrainOptions options;
    options.exchanges = 8;
    options.pruning.target = "parameters=0.1";
    options.pruning.importance = importance;
    return message(
        [&] { ScheduledPruning(options, length_of_steps(options, 8 * options.local_steps), model.program); });
  };
  EXPECT_EQ(refusal("l2"), "no exception");
  EXPECT_THAT(refusal("bn_scale"), HasSubstr("`prune_to` parameters=0.1: at least"));
}

TEST(Phases, RefuseOptionsThatMakeNoSenseTogether) {
  const auto refusal = [](const std::function<void(TrainOptions&)>& change) {
    TrainOptions options = phases("ddp");
    change(options);
    return message([&] { validate(options); });
  };
  EXPECT_EQ(refusal([](TrainOptions&) {}), "no exception");
  EXPECT_THAT(refusal([](TrainOptions& o) { o.strategy = "hsadmm", o.groups = "auto"; }),
              HasSubstr("`groups`: got coupled-inner"));
  EXPECT_THAT(refusal([](TrainOptions& o) { o.sparse.penalty = "none"; }),
              HasSubstr("`sparse_epochs`: needs `sparse`"));
  EXPECT_THAT(refusal([](TrainOptions& o) { o.sparse.penalty = "l3"; }), HasSubstr("`sparse`: got 'l3'"));
  EXPECT_THAT(refusal([](TrainOptions& o) { o.pruning.below = 0.1; }), HasSubstr("`prune_below`"));
  EXPECT_THAT(refusal([](TrainOptions& o) { o.pruning.normalizer = "mode"; }), HasSubstr("`normalizer`: got 'mode'"));
  EXPECT_THAT(refusal([](TrainOptions& o) { o.pruning.steps = 0; }), HasSubstr("`prune_steps`: got 0"));

  // what prunetrain sets by itself counts as if it had been given
  const auto prunetrain = [&](const std::function<void(TrainOptions&)>& change) {
    return refusal([&](TrainOptions& o) {
      o.strategy = "prunetrain", o.sparse = {}, o.pruning = {};
      change(o);
    });
  };
  EXPECT_EQ(prunetrain([](TrainOptions& o) { o.sparse.epochs = 1; }), "no exception");
  EXPECT_THAT(prunetrain([](TrainOptions& o) { o.pruning.every = 0; }), HasSubstr("`prune_every`: got 0"));
  const auto at_start = [](const std::string& target, int64_t steps) {
    const tests::Scratch scratch;
    TrainOptions options = phases("ddp");
    options.pruning.target = target;
    options.pruning.steps = steps;
    return message([&] { run_phases(options, scratch / "run"); });
  };
  EXPECT_THAT(at_start("2.11", 1), HasSubstr("`prune_to`: got '2.11', wanted ratio=R"));
  EXPECT_THAT(at_start("speed-up=0.5", 1), HasSubstr("`prune_to` speed-up 0.5: wanted 1 or more"));
  EXPECT_THAT(at_start("speed-up=2000", 1), HasSubstr("`prune_to` speed-up=2000: at least"));
  EXPECT_THAT(at_start("flops=2", 1), HasSubstr("got 'flops', wanted ratio, macs, parameters or speed-up"));
  EXPECT_THAT(at_start("speed-up=2", 9), HasSubstr("`prune_steps`: the last of 9 cuts"));
}

}  // namespace
}  // namespace prunex::train
