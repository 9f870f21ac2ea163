// Pruned models: equal to masked ones, of the size that was asked for; the given model stays as it was.
#include "prunex/prune/pruner.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "prunex/models/models.h"
#include "prunex/program/macs.h"
#include "tests/channels/case_check.h"

namespace prunex::prune {
namespace {

using channels::masked_error;
using program::Model;

Model resnet8() {
  Model model = models::make_model("resnet8", {});
  auto generator = at::detail::createCPUGenerator(5);
  const at::NoGradGuard no_grad;
  for (auto& item : model.weights.params) {
    if (item.value().dim() == 1) item.value().uniform_(0.2, 1, generator);
  }
  for (auto& item : model.weights.buffers) {
    if (item.key().ends_with("running_mean")) item.value().normal_(0, 0.5, generator);
  }
  return model;
}

Target macs_target(const Pruner& pruner, double share) {
  const int64_t whole = pruner.planner().cost().macs(all_units(pruner.planner().groups()));
  return {.kind = Target::Kind::kMacs, .count = static_cast<int64_t>(share * static_cast<double>(whole))};
}

TEST(Pruner, LeavesTheMaskedNetworkWhateverTheCriterion) {
  const Model model = resnet8();
  for (const char* name : {"l1", "l2", "bn_scale", "lamp", "fpgm", "random"}) {
    for (const Scope scope : {Scope::kLocal, Scope::kIsomorphic, Scope::kGlobal}) {
      Pruner pruner(model, {.scope = scope});
      pruner.prune(*make_importance(importance_named(name), model.program.graph()), macs_target(pruner, 0.4), 3);
      const Pruned pruned = pruner.result();
      EXPECT_LT(masked_error(pruned.model, model, model.program, pruner.alive(), channels::Mask::kColumns), 1e-5);
      EXPECT_LE(pruned.after.macs, pruned.before.macs * 4 / 10) << name;
      EXPECT_GT(pruned.after.macs, pruned.before.macs * 3 / 10) << name;
      EXPECT_EQ(pruned.after.macs, program::macs(pruned.model.program.graph()));
      EXPECT_EQ(pruned.after.parameters, program::parameter_count(pruned.model.weights));
    }
  }
}

TEST(Pruner, LeavesTheGivenModelAlone) {
  const Model model = resnet8();
  const auto inputs = channels::make_inputs(model.program.graph());
  const at::Tensor before = channels::run(model, inputs)[0];
  const auto importance = make_importance(importance_named("l2"), model.program.graph());
  Pruner pruner(model, {});
  EXPECT_THROW(pruner.prune(*importance, {.kind = Target::Kind::kMacs, .count = 1}), std::invalid_argument);
  EXPECT_THROW(pruner.prune(*importance, {.kind = Target::Kind::kMacs, .count = 1}, 5), std::invalid_argument);
  EXPECT_TRUE(pruner.cut().empty());
  pruner.prune(*importance, macs_target(pruner, 0.5));
  EXPECT_FALSE(pruner.result().cut.empty());
  EXPECT_TRUE(channels::run(model, inputs)[0].equal(before));
}

// Evidence is measured, not cut.
TEST(Pruner, GoesOneStepAtATimeWithEvidence) {
  const Model model = resnet8();
  for (const char* name : {"taylor", "hessian", "obdc", "activation"}) {
    TensorDict evidence;
    for (const auto& item : model.weights.params) {
      const at::Tensor& weight = item.value();
      if (weight.dim() < 2) continue;
      evidence.insert(item.key(),
                      name == std::string("activation") ? at::rand({weight.size(1)}) : at::rand_like(weight));
    }
    const auto importance = make_importance(importance_named(name), model.program.graph(), evidence);
    Pruner pruner(model, {});
    EXPECT_THAT(
        [&] { pruner.prune(*importance, {.share = 0.5}, 2); },
        testing::ThrowsMessage<std::invalid_argument>(testing::HasSubstr("`steps`: got 2, wanted 1 with evidence")))
        << name;
    EXPECT_TRUE(pruner.cut().empty());
    pruner.prune(*importance, {.share = 0.5}, 1);
    EXPECT_FALSE(pruner.cut().empty()) << name;
  }
}

// Scores in the second step are those of the network that the first one leaves.
TEST(Pruner, ScoresAnewInEveryStep) {
  const Model model = resnet8();
  const auto& graph = model.program.graph();
  const auto importance = make_importance(importance_named("l2"), graph);
  Pruner once(model, {.scope = Scope::kGlobal}), twice(model, {.scope = Scope::kGlobal});
  const Target target = macs_target(once, 0.4);
  twice.prune(*importance, target, 2);

  once.step(importance->score(once.planner().groups(), model.weights), target, 0.5);
  const Pruned half = once.result();
  const auto groups = channels::Analysis(half.model.program.graph()).removable();
  once.step(make_importance(importance_named("l2"), half.model.program.graph())->score(groups, half.model.weights),
            target, 1);
  EXPECT_EQ(once.cut(), twice.cut());
}

// The groups of the cut network, found by analysis, are what renumbering leaves of the whole one's.
TEST(Pruner, RenumbersGroups) {
  const Model model = resnet8();
  Pruner pruner(model, {});
  pruner.prune(*make_importance(importance_named("random"), model.program.graph()), {.share = 0.3});
  const Pruned pruned = pruner.result();
  const Remaining rest = remaining(pruner.planner().groups(), pruner.alive(), model.weights);
  const auto expected = channels::Analysis(pruned.model.program.graph()).removable();
  ASSERT_EQ(rest.groups.size(), expected.size());
  for (size_t group = 0; group < expected.size(); ++group) {
    EXPECT_EQ(rest.groups[group].name, expected[group].name);
    EXPECT_EQ(rest.groups[group].size, expected[group].size);
    EXPECT_EQ(rest.groups[group].slices, expected[group].slices);
  }
  for (const auto& item : rest.weights.params) EXPECT_TRUE(item.value().equal(pruned.model.weights.params[item.key()]));
}

TEST(Pruner, SaysWhatWasNotDone) {
  const Model model = resnet8();
  Pruner pruner(model, {.limits = {.max_ratio = 0.25, .ignore = {"layer1.*"}}});
  pruner.prune(*make_importance(importance_named("l2"), model.program.graph()), {.share = 0.5});
  for (const Decision& decision : pruner.decisions()) {
    if (decision.kind == channels::GroupKind::kInput || decision.kind == channels::GroupKind::kOutput) {
      EXPECT_EQ(decision.kept, decision.units);
      EXPECT_FALSE(decision.reason.empty()) << decision.group;
    } else if (decision.group.starts_with("layer1.") || decision.group == "conv1") {
      EXPECT_EQ(decision.reason, "`ignore` layer1.*") << decision.group;
      EXPECT_EQ(decision.kept, decision.units) << decision.group;
    } else {
      EXPECT_EQ(decision.asked, decision.units / 2) << decision.group;
      EXPECT_EQ(decision.kept, decision.units * 3 / 4) << decision.group;
      EXPECT_THAT(decision.reason, testing::HasSubstr("at least")) << decision.group;
    }
  }
}

// A cost has no share per group: what limits took from one, others had to give.
TEST(Pruner, SaysWhatWasNotDoneForACost) {
  const Model model = resnet8();
  Pruner pruner(model, {.scope = Scope::kGlobal, .limits = {.max_ratio = 0.3}});
  const int64_t whole = pruner.planner().cost().macs(all_units(pruner.planner().groups()));
  pruner.prune(*make_importance(importance_named("l2"), model.program.graph()),
               {.kind = Target::Kind::kMacs, .count = whole * 6 / 10});
  int limited = 0, others = 0;
  for (const Decision& decision : pruner.decisions()) {
    if (decision.kept > decision.asked) {
      EXPECT_THAT(decision.reason, testing::HasSubstr("at least")) << decision.group;
      ++limited;
    } else if (decision.kept < decision.asked) {
      EXPECT_THAT(decision.reason, testing::HasSubstr("others")) << decision.group;
      ++others;
    }
  }
  EXPECT_GT(limited, 0);
  EXPECT_GT(others, 0);
  for (const LayerWidth& layer : pruner.layers()) EXPECT_TRUE(layer.asked == layer.done || !layer.reason.empty());
}

/// The same network for batches of `images` only.
Model with_fixed_batch(const Model& model, int64_t images) {
  program::Graph graph = model.program.graph();
  for (auto& value : graph.values) {
    for (auto& extent : value.shape) {
      if (extent.per_image) extent = {extent.factor * images, false};
    }
  }
  return {program::Program(graph), model.weights};
}

TEST(Pruner, PrunesANetworkOfAFixedBatchLikeADynamicOne) {
  const Model dynamic = models::make_model("resnet8", {}), fixed = with_fixed_batch(dynamic, 4);
  std::vector<Pruned> pruned;
  for (const Model& model : {dynamic, fixed}) {
    Pruner pruner(model, {});
    pruner.prune(*make_importance(importance_named("l2"), model.program.graph()), {.share = 0.5});
    pruned.push_back(pruner.result());
  }
  EXPECT_EQ(pruned[0].cut, pruned[1].cut);
  EXPECT_EQ(pruned[0].before.macs, pruned[1].before.macs);
  EXPECT_EQ(pruned[0].after.macs, pruned[1].after.macs);
  EXPECT_EQ(program::macs(dynamic.program.graph()), program::macs(fixed.program.graph()));
}

}  // namespace
}  // namespace prunex::prune
