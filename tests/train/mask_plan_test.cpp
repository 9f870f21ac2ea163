// Masks under one budget; MACs of small_network() with a and b units left in conv1 and conv2 are 1728 a + 144 a b + 5
// b: 13,844 of all.
#include "prunex/train/strategy_choice.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "prunex/train/pruning/mask_choice.h"
#include "prunex/train/trainer.h"
#include "tests/scratch.h"
#include "tests/texts.h"
#include "tests/train/small_network.h"
#include "tests/train/whole_runs.h"

namespace prunex::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

TrainOptions budget(const std::string& words, prune::Scope scope = prune::Scope::kGlobal) {
  TrainOptions options;
  options.groups = "coupled-inner";
  options.budget = words;
  options.round_to = 1;
  options.pruning.plan.scope = scope;
  return options;
}

/// The units that live, by group. Divided by their groups' means, 3.5 and 2, the scores go in the order conv1 0, conv2
/// 0, 1, 2, conv1 1, 2, 3, …
std::vector<std::vector<int64_t>> chosen(const TrainOptions& options, double progress = 1) {
  const auto model = small_network();
  const auto groups = groups_to_prune(model.program.graph(), options);
  const auto select = mask_plan(options, groups, model.program.graph());
  const std::vector<at::Tensor> scores{at::tensor({1., 2., 3., 4., 5., 6.}), at::tensor({1., 1., 1., 5.})};
  std::vector<std::vector<int64_t>> units;
  for (const auto& mask : select({scores[0].to(at::kDouble), scores[1].to(at::kDouble)}, progress)) {
    const at::Tensor alive = mask.value().nonzero().flatten();
    units.emplace_back(alive.const_data_ptr<int64_t>(), alive.const_data_ptr<int64_t>() + alive.numel());
  }
  return units;
}

TEST(MaskPlan, MeetsABudgetByTheFewestUnitsOfAllGroups) {
  EXPECT_THAT(chosen(budget("macs=0.5")), ElementsAre(ElementsAre(3, 4, 5), ElementsAre(3)));  // 5,621 of 6,922
  EXPECT_THAT(chosen(budget("macs=7493")), ElementsAre(ElementsAre(2, 3, 4, 5), ElementsAre(3)));
  EXPECT_THAT(chosen(budget("speed-up=2")), ElementsAre(ElementsAre(3, 4, 5), ElementsAre(3)));
}

TEST(MaskPlan, IsOnTheWayAtAShareOfTheProgress) {
  EXPECT_THAT(chosen(budget("macs=0.5"), 0.5), ElementsAre(ElementsAre(1, 2, 3, 4, 5), ElementsAre(2, 3)));  // 10,383
}

TEST(MaskPlan, RanksAShareOfAllUnitsTogether) {
  EXPECT_THAT(chosen(budget("")), ElementsAre(ElementsAre(2, 3, 4, 5), ElementsAre(3)));
}

TEST(MaskPlan, SparesLayersAndShares) {
  TrainOptions options = budget("macs=0.5");
  options.pruning.plan.limits.ignore = {"conv2"};
  EXPECT_THAT(chosen(options), ElementsAre(ElementsAre(4, 5), ElementsAre(0, 1, 2, 3)));  // 2,304 a + 20
  options = budget("macs=0.5");
  options.pruning.plan.limits.max_ratio = 0.5;
  EXPECT_THAT(chosen(options), ElementsAre(ElementsAre(3, 4, 5), ElementsAre(2, 3)));  // 6,058
  options = budget("", prune::Scope::kLocal);
  options.pruning.plan.limits.ratios = {{"conv1", 1.0 / 3}};
  EXPECT_THAT(chosen(options), ElementsAre(ElementsAre(2, 3, 4, 5), ElementsAre(2, 3)));
}

TEST(MaskPlan, IsNotNeededForSharesOfGroups) {
  const auto model = small_network();
  const TrainOptions options = budget("", prune::Scope::kLocal);
  EXPECT_FALSE(mask_plan(options, groups_to_prune(model.program.graph(), options), model.program.graph()));
}

TEST(MaskPlan, RefusesWhatItCannotMeet) {
  const auto refused = [](TrainOptions options, const auto& text) {
    const auto model = small_network();
    const auto plan = [&] {
      mask_plan(options, groups_to_prune(model.program.graph(), options), model.program.graph());
    };
    EXPECT_THAT(plan, testing::ThrowsMessage<std::invalid_argument>(text));
  };
  refused(budget("macs=0.01"), StartsWith("`keep` macs=0.01: at least "));
  refused(budget("macs=-1"), StartsWith("`keep` macs -1: wanted "));
  refused(budget("ratio=0.5"), StartsWith("`keep`: got 'ratio=0.5', wanted "));
  refused(budget("milliseconds=5"), HasSubstr("milliseconds"));
  TrainOptions options = budget("macs=0.5");
  options.groups = "coupled-inner:0.3";
  refused(options, StartsWith("`groups` coupled-inner:0.3: "));
  options = budget("macs=0.5");
  options.masks.rule = strategies::MaskRule::kUnion;
  refused(options, StartsWith("`mask_rule` union: "));
  options = budget("macs=0.5");
  options.pruning.plan.limits.ignore = {"conv9"};
  refused(options, StartsWith("`ignore` conv9: "));
}

class BudgetOf : public testing::TestWithParam<const char*> {};

// Found by all ranks without a message, cut, and repeated by a run that goes on.
TEST_P(BudgetOf, IsMetByWhatShips) {
  const tests::Scratch scratch;
  TrainOptions options = tiny_run(64, 0);
  options.strategy = GetParam();
  options.groups = "coupled";
  options.budget = "macs=0.6";
  options.round_to = 1;
  options.pruning.plan.scope = prune::Scope::kGlobal;
  options.nodes = 2;
  options.ranks_per_node = {2};
  options.exchanges = 6;
  options.local_steps = 2;
  options.checkpoint_every = 3;
  options.run_dir = scratch / "run";
  const Summary summary = run_to_end(options);
  const double left = static_cast<double>(summary.macs_compact) / static_cast<double>(summary.macs_dense);
  EXPECT_LE(left, 0.6);
  EXPECT_GT(left, 0.5);
  EXPECT_NEAR(summary.accuracy, summary.accuracy_compact, 2e-4);
  const auto lines = lines_without_seconds(options.run_dir);
  options.resume = options.run_dir;
  options.resume_exchange = 3;  // the last one before the masks are final
  run_to_end(options);
  EXPECT_EQ(lines_without_seconds(options.run_dir), lines);
}

INSTANTIATE_TEST_SUITE_P(MaskPlan, BudgetOf, testing::Values("hsadmm", "diloco", "one_shot"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace prunex::train
