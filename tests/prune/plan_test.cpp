// Plans against orders written down by hand, and against a linear search.
#include "prunex/prune/plan.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <tuple>

#include "prunex/models/models.h"
#include "prunex/program/builder.h"
#include "prunex/program/pt2.h"
#include "prunex/sparsity/projection.h"

namespace prunex::prune {
namespace {

using program::Builder;
using program::Model;
using program::ValueId;
using sparsity::Masks;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Kind = Target::Kind;
using Counts = std::vector<int64_t>;

at::Tensor bools(const std::vector<int64_t>& values) {
  return at::tensor(values, at::kLong).to(at::kBool);
}

/// Three convolutions of 6, 10 and 7 filters before a linear layer: groups a, b and c.
Model chain() {
  Builder net(0);
  ValueId x = net.relu(net.conv2d("a", net.input("x", {3, 8, 8}), {.out = 6, .kernel = 3}));
  x = net.relu(net.conv2d("b", x, {.out = 10, .kernel = 3}));
  x = net.conv2d("c", x, {.out = 7, .kernel = 3});
  return std::move(net).finish(net.linear("fc", net.flatten(net.adaptive_avg_pool2d(x, {1, 1})), {.out = 3}));
}

Planner planner_of(const Model& model, const PlanOptions& options) {
  const auto& graph = model.program.graph();
  return Planner(graph, options);
}

/// a: 0 1 … 5, b: 0.5 1.5 … 9.5, c: 100 101 … 106.
std::vector<UnitScores> rising_scores() {
  std::vector<UnitScores> scores(3);
  for (int i = 0; i < 6; ++i) scores[0].push_back(i);
  for (int i = 0; i < 10; ++i) scores[1].push_back(i + 0.5);
  for (int i = 0; i < 7; ++i) scores[2].push_back(i + 100);
  return scores;
}

Plan plan(const Planner& planner, const std::vector<UnitScores>& scores, const Target& target, double progress = 1) {
  return planner.plan(sparsity::full_masks(planner.groups()), scores, target, progress);
}

/// Units that a plan for the chain keeps by group.
Counts kept(const PlanOptions& options, const Target& target, const std::vector<UnitScores>& scores = rising_scores()) {
  const Planner planner = planner_of(chain(), options);
  return kept_units(planner.groups(), plan(planner, scores, target).masks);
}

Target ratio(double share) {
  return {.kind = Kind::kRatio, .share = share};
}

TEST(Plan, MeetsLocalRatiosWithinHalfAUnit) {
  EXPECT_THAT(kept({}, ratio(0.5)), ElementsAre(3, 5, 4));
  EXPECT_THAT(kept({}, ratio(0.3)), ElementsAre(4, 7, 5));
  EXPECT_THAT(kept({}, ratio(0)), ElementsAre(6, 10, 7));
}

TEST(Plan, RemovesTheLowestScores) {
  const Planner planner = planner_of(chain(), {});
  std::vector<UnitScores> scores = rising_scores();
  scores[0] = {3, 1, 2, 9, 0, 5};
  const Masks masks = plan(planner, scores, ratio(0.5)).masks;
  EXPECT_TRUE(masks["a"].equal(bools({1, 0, 0, 1, 0, 1})));
}

TEST(Plan, RefusesScoresThatAreNotNumbers) {
  const Planner planner = planner_of(chain(), {});
  std::vector<UnitScores> scores = rising_scores();
  scores[1][3] = std::nan("");
  EXPECT_THAT([&] { plan(planner, scores, ratio(0.5)); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("the score of unit 3 of b is not a number")));
}

// Of 23 units 12 stay; the 11 lowest are five of a and six of b.
TEST(Plan, MeetsGlobalRatiosExactly) {
  EXPECT_THAT(kept({.scope = Scope::kGlobal}, ratio(0.5)), ElementsAre(1, 4, 7));
}

TEST(Plan, NeverRemovesAGroupWhole) {
  std::vector<UnitScores> scores = rising_scores();
  for (double& score : scores[1]) score = -1;
  EXPECT_THAT(kept({.scope = Scope::kGlobal}, ratio(0.5), scores), ElementsAre(4, 1, 7));
  EXPECT_THAT(kept({}, ratio(1)), ElementsAre(1, 1, 1));
}

TEST(Plan, LimitsWhatOneGroupLoses) {
  std::vector<UnitScores> scores = rising_scores();
  for (double& score : scores[1]) score = -1;
  const PlanOptions options{.scope = Scope::kGlobal, .limits = {.max_ratio = 0.5}};
  EXPECT_THAT(kept(options, ratio(0.5), scores), ElementsAre(3, 5, 4));
  EXPECT_THAT(kept(options, ratio(0.3), scores), ElementsAre(4, 5, 7));
}

TEST(Plan, BreaksTiesByGroupAndUnit) {
  std::vector<UnitScores> scores{UnitScores(6, 1), UnitScores(10, 1), UnitScores(7, 1)};
  const Planner planner = planner_of(chain(), {.scope = Scope::kGlobal});
  const Masks masks = plan(planner, scores, ratio(4 / 23.0)).masks;
  EXPECT_TRUE(masks["a"].equal(bools({0, 0, 0, 0, 1, 1})));
  EXPECT_THAT(kept_units(planner.groups(), masks), ElementsAre(2, 10, 7));
}

TEST(Plan, ComparesGroupsOfOneStructure) {
  Builder net(0);
  ValueId x = net.relu(net.batch_norm("n", net.conv2d("a", net.input("x", {3, 8, 8}), {.out = 6})));
  x = net.relu(net.conv2d("b", x, {.out = 6}));
  x = net.relu(net.conv2d("c", x, {.out = 6}));
  const Model model = std::move(net).finish(net.conv2d("d", x, {.out = 2}));
  const Planner planner = planner_of(model, {.scope = Scope::kIsomorphic});
  // a has a batch norm and is alone; b is all below c.
  std::vector<UnitScores> scores{{1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6}, {7, 8, 9, 10, 11, 12}};
  EXPECT_THAT(kept_units(planner.groups(), plan(planner, scores, ratio(0.4)).masks), ElementsAre(4, 1, 6));
}

TEST(Plan, RoundsToTheNearestMultiple) {
  EXPECT_THAT(kept({.limits = {.round_to = 4}}, ratio(0.5)), ElementsAre(4, 4, 4));
  EXPECT_THAT(kept({.limits = {.round_to = 4}}, ratio(0.9)), ElementsAre(4, 4, 4));
  EXPECT_THAT(kept({.limits = {.round_to = 4}}, ratio(0.1)), ElementsAre(4, 8, 7));
  EXPECT_THAT(kept({.limits = {.round_to = 8}}, ratio(0.5)), ElementsAre(6, 8, 7));
}

// A unit of b has a filter in each of 4 groups: 6 units of 4 filters; lcm(4, 6) = 12 filters are 3 units.
TEST(Plan, RoundsChannelsOfGroupedConvolutions) {
  Builder net(0);
  const ValueId a = net.relu(net.conv2d("a", net.input("x", {3, 8, 8}), {.out = 8, .kernel = 3}));
  const ValueId b = net.conv2d("b", a, {.out = 24, .kernel = 3, .groups = 4});
  const Model model = std::move(net).finish(net.conv2d("c", b, {.out = 2}));
  const Planner planner = planner_of(model, {.limits = {.round_to = 6}});
  EXPECT_EQ(planner.limits()[1].multiple, 3);
  const std::vector<UnitScores> scores{{1, 2}, {1, 2, 3, 4, 5, 6}};
  EXPECT_THAT(kept_units(planner.groups(), plan(planner, scores, ratio(0.4)).masks), ElementsAre(2, 3));
}

TEST(Plan, SparesWhatPatternsName) {
  EXPECT_THAT(kept({.limits = {.ignore = {"[ab]"}}}, ratio(0.5)), ElementsAre(6, 10, 4));
  const PlanOptions own{.limits = {.ratios = {{"*", 0.1}, {"b", 0.8}}}};
  EXPECT_THAT(kept(own, ratio(0.5)), ElementsAre(5, 2, 6));
}

/// Names as `prunex graph` prints them, with brackets that stand for themselves.
TEST(Plan, SparesAGroupByItsName) {
  const Model model = program::read_pt2(PRUNEX_TEST_DATA "/prune/cases/chunk_two.pt2");
  const Planner planner = planner_of(model, {.limits = {.ignore = {"a[4]"}}});
  const std::vector<UnitScores> scores{{1, 2, 3, 4}, {1, 2, 3, 4}, {1, 2, 3, 4, 5, 6}};
  EXPECT_THAT(kept_units(planner.groups(), plan(planner, scores, ratio(0.5)).masks), ElementsAre(2, 4, 3));
}

// a makes the units of a[4], too.
TEST(Plan, LeavesGroupsWholeByNameAlone) {
  const Model model = program::read_pt2(PRUNEX_TEST_DATA "/prune/cases/chunk_two.pt2");
  const Planner planner = planner_of(model, {.limits = {.whole = {{"a", "told so"}}}});
  const std::vector<UnitScores> scores{{1, 2, 3, 4}, {1, 2, 3, 4}, {1, 2, 3, 4, 5, 6}};
  EXPECT_THAT(kept_units(planner.groups(), plan(planner, scores, ratio(0.5)).masks), ElementsAre(4, 2, 3));
  EXPECT_EQ(planner.limits()[0].reason, "told so");
  EXPECT_THAT(
      [&] {
        planner_of(model, {.limits = {.whole = {{"c", "told so"}}}});
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("`whole`: there is no group c")));
}

TEST(Plan, RefusesMultiplyAccumulatesOfANetworkThatHasNone) {
  Builder net(0);
  const ValueId input = net.input("x", {3, 8, 8});
  const Model model = std::move(net).finish(net.flatten(net.relu(input)));
  EXPECT_THAT([&] { target_named("`speed_up`", "speed-up", 2, planner_of(model, {})); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("`speed_up`: the network has no multiply-accumulates")));
}

TEST(Plan, SparesGroupsWithoutScores) {
  std::vector<UnitScores> scores = rising_scores();
  scores[1].clear();
  EXPECT_THAT(kept({}, ratio(0.5), scores), ElementsAre(3, 10, 4));
}

/// What a search that removes one unit after another by score keeps.
Counts search(const Planner& planner, const std::vector<UnitScores>& scores, int64_t limit) {
  std::vector<std::tuple<double, size_t, size_t>> order;
  for (size_t group = 0; group < scores.size(); ++group) {
    for (size_t unit = 0; unit < scores[group].size(); ++unit) order.emplace_back(scores[group][unit], group, unit);
  }
  std::sort(order.begin(), order.end());
  Counts left = all_units(planner.groups());
  for (const auto& [score, group, unit] : order) {
    if (planner.cost().macs(left) <= limit) break;
    if (left[group] > 1) --left[group];
  }
  return left;
}

TEST(Plan, MeetsCostsByTheFewestRemovals) {
  const Model model = models::make_model("resnet20", {});
  const Planner planner = planner_of(model, {.scope = Scope::kGlobal});
  auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
  std::vector<UnitScores> scores;
  for (const auto& group : planner.groups()) {
    const at::Tensor random = at::rand({group.size}, generator, at::kDouble);
    scores.emplace_back(random.const_data_ptr<double>(), random.const_data_ptr<double>() + group.size);
  }
  const int64_t whole = planner.cost().macs(all_units(planner.groups()));
  for (double speed_up : {1.0, 1.3, 2.11, 5.0, 20.0}) {
    const Target target{.kind = Kind::kMacs, .count = static_cast<int64_t>(static_cast<double>(whole) / speed_up)};
    const Counts left = kept_units(planner.groups(), plan(planner, scores, target).masks);
    EXPECT_EQ(left, search(planner, scores, target.count)) << speed_up;
    EXPECT_LE(planner.cost().macs(left), target.count);
  }
}

// What is asked for is what a plan without limits keeps.
TEST(Plan, AsksOfCostsWithoutLimits) {
  const Model model = chain();
  const Planner free = planner_of(model, {.scope = Scope::kGlobal});
  const Target target{.kind = Kind::kMacs, .count = free.cost().macs({3, 6, 7})};
  const Plan wished = plan(free, rising_scores(), target);
  for (const LimitOptions& limits : {LimitOptions{.max_ratio = 0.5}, LimitOptions{.round_to = 4}}) {
    const Plan limited = plan(planner_of(model, {.scope = Scope::kGlobal, .limits = limits}), rising_scores(), target);
    EXPECT_EQ(limited.asked, kept_units(free.groups(), wished.masks));
    EXPECT_NE(kept_units(free.groups(), limited.masks), limited.asked);
  }
}

// Local: all groups shrink at one pace, so no two differ by more than a unit from the common share.
TEST(Plan, MeetsCostsLocallyWithoutOvershoot) {
  const Model model = models::make_model("resnet20", {});
  const Planner planner = planner_of(model, {});
  std::vector<UnitScores> scores;
  for (const auto& group : planner.groups()) scores.emplace_back(group.size, 1);
  const int64_t whole = planner.cost().parameters(all_units(planner.groups()));
  const Target target{.kind = Kind::kParameters, .count = whole / 3};
  Counts left = kept_units(planner.groups(), plan(planner, scores, target).masks);
  EXPECT_LE(planner.cost().parameters(left), target.count);
  double low = 1, high = 0;
  for (size_t group = 0; group < left.size(); ++group) {
    const auto units = static_cast<double>(planner.groups()[group].size);
    low = std::min(low, static_cast<double>(left[group]) / units);
    high = std::max(high, static_cast<double>(left[group] - 1) / units);
  }
  EXPECT_LE(high, low + 1e-12);
}

TEST(Plan, RefusesCostsOutOfReach) {
  const Target target{.kind = Kind::kMacs, .count = 10};
  EXPECT_THAT([&] { kept({}, target); }, ThrowsMessage<std::invalid_argument>(HasSubstr("MACs are left")));
  EXPECT_THAT([&] { kept({.limits = {.ignore = {"*"}}}, target); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("MACs are left")));
}

TEST(Plan, RefusesPatternsThatMatchNothing) {
  EXPECT_THAT([&] { planner_of(chain(), {.limits = {.ignore = {"layer9*"}}}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("`ignore` layer9*")));
  EXPECT_THROW(planner_of(chain(), {.limits = {.max_ratio = 1.5}}), std::invalid_argument);
  EXPECT_THROW(planner_of(chain(), {.limits = {.round_to = -1}}), std::invalid_argument);
}

TEST(Plan, GoesPartOfTheWay) {
  const Planner planner = planner_of(chain(), {});
  EXPECT_THAT(kept_units(planner.groups(), plan(planner, rising_scores(), ratio(0.8), 0.5).masks),
              ElementsAre(4, 6, 4));
  const Masks half = plan(planner, rising_scores(), ratio(0.8), 0.5).masks;
  EXPECT_THAT(kept_units(planner.groups(), planner.plan(half, rising_scores(), ratio(0.8)).masks),
              ElementsAre(1, 2, 1));
}

// Torch-Pruning keeps int(n (1 - ratio)); rounds down, and leaves groups whole that would vanish.
TEST(Plan, OfTorchPruningTruncates) {
  EXPECT_THAT(kept({.tp_compat = true}, ratio(0.3)), ElementsAre(4, 7, 4));
  EXPECT_THAT(kept({.limits = {.round_to = 8}, .tp_compat = true}, ratio(0.5)), ElementsAre(6, 10, 7));
  EXPECT_THAT(kept({.limits = {.round_to = 2}, .tp_compat = true}, ratio(0.5)), ElementsAre(2, 4, 2));
  std::vector<UnitScores> scores = rising_scores();
  for (double& score : scores[1]) score = -1;
  EXPECT_THAT(kept({.limits = {.round_to = 4, .max_ratio = 0.5}, .tp_compat = true}, ratio(0.5)), ElementsAre(6, 8, 7));
  EXPECT_THAT(kept({.scope = Scope::kGlobal, .tp_compat = true}, ratio(0.5), scores), ElementsAre(4, 10, 7));
}

// A cost cannot be met by groups that come back whole.
TEST(Plan, OfTorchPruningMeetsCosts) {
  const Planner planner = planner_of(chain(), {.scope = Scope::kGlobal, .tp_compat = true});
  const Target target{.kind = Kind::kMacs, .count = planner.cost().macs({1, 2, 7})};
  EXPECT_THAT(kept_units(planner.groups(), plan(planner, rising_scores(), target).masks), ElementsAre(1, 2, 7));
}

}  // namespace
}  // namespace prunex::prune
