#include "prunex/prune/training_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "prunex/program/builder.h"
#include "prunex/program/pt2.h"
#include "tests/texts.h"

namespace prunex::prune {
namespace {

using program::Builder;
using program::Model;
using program::ValueId;
using sparsity::Group;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using tests::message;

/// stem -> block (a, b) around a shortcut -> hidden linear -> classifier
Model residual_network() {
  Builder net(0);
  const ValueId x = net.relu(net.batch_norm("bn", net.conv2d("stem", net.input("x", {3, 8, 8}), {.out = 4})));
  ValueId y = net.relu(net.batch_norm("bn_a", net.conv2d("a", x, {.out = 6, .kernel = 3, .padding = 1, .bias = true})));
  y = net.add(net.conv2d("b", y, {.out = 4}), x);
  y = net.relu(net.linear("hidden", net.mean(y, {2, 3}), {.out = 5}));
  return std::move(net).finish(net.linear("classifier", y, {.out = 10}));
}

std::vector<Group> groups(const std::string& words, double keep = 0.5) {
  return training_groups(residual_network().program.graph(), words, keep);
}

std::vector<std::string> names(const std::vector<Group>& groups) {
  std::vector<std::string> names;
  for (const Group& group : groups) names.push_back(group.name);
  return names;
}

std::vector<std::string> tensors(const Group& group) {
  std::vector<std::string> tensors;
  for (const auto& slice : group.slices) tensors.push_back(slice.tensor + ":" + std::to_string(slice.axis));
  return tensors;
}

TEST(TrainingGroups, CoupledListsParametersButNoStatistics) {
  const auto inner = groups("coupled-inner");
  EXPECT_THAT(names(inner), ElementsAre("a", "hidden"));
  EXPECT_THAT(tensors(inner[0]), ElementsAre("a.bias:0", "a.weight:0", "b.weight:1", "bn_a.bias:0", "bn_a.weight:0"));
  EXPECT_EQ(inner[0].size, 6);
  EXPECT_EQ(inner[0].keep, 0.5);
  EXPECT_THAT(names(groups("coupled")), ElementsAre("a", "b", "hidden"));
}

TEST(TrainingGroups, FilterTakesRowsWithTheirBatchNorm) {
  const auto filter = groups("filter");
  EXPECT_THAT(names(filter), ElementsAre("filter:a", "filter:b", "filter:hidden"));
  EXPECT_THAT(tensors(filter[0]), ElementsAre("a.weight:0", "a.bias:0", "bn_a.weight:0", "bn_a.bias:0"));
  EXPECT_EQ(filter[2].size, 5);
}

/// A norm of groups, behind dropout.
TEST(TrainingGroups, FilterTakesEveryNormThatReadsItsChannels) {
  Builder net(0);
  const ValueId stem = net.conv2d("stem", net.input("x", {3, 8, 8}), {.out = 4});
  const ValueId a = net.conv2d("a", stem, {.out = 4, .kernel = 3, .padding = 1});
  const ValueId y = net.group_norm("norm", net.dropout(net.relu_(a), 0.5), 2);
  const auto model = std::move(net).finish(net.linear("fc", net.mean(y, {2, 3}), {.out = 3}));
  EXPECT_THAT(tensors(training_groups(model.program.graph(), "filter", 0.5).at(0)),
              ElementsAre("a.weight:0", "norm.weight:0", "norm.bias:0"));
}

TEST(TrainingGroups, ChannelAndShapeTakeColumnsOfConvolutions) {
  const auto both = groups("channel+shape");
  EXPECT_THAT(names(both), ElementsAre("channel:a", "channel:b", "shape:a", "shape:b"));
  EXPECT_THAT(tensors(both[0]), ElementsAre("a.weight:1"));
  EXPECT_EQ(both[0].size, 4);
  EXPECT_THAT(tensors(both[2]), ElementsAre("a.weight:-1"));
  EXPECT_EQ(both[2].size, 4 * 3 * 3);
}

TEST(TrainingGroups, EachKindMayHaveItsOwnShare) {
  const auto both = groups("filter:0.8+channel", 0.25);
  EXPECT_EQ(both.front().keep, 0.8);
  EXPECT_EQ(both.back().keep, 0.25);
}

TEST(TrainingGroups, NoneIsEmpty) {
  EXPECT_THAT(groups("none"), IsEmpty());
}

/// a (16) -> b (12), of 4 groups, so that a unit of either is 4 channels -> classifier
Model grouped_network() {
  Builder net(0);
  const ValueId a = net.relu(net.conv2d("a", net.input("x", {3, 8, 8}), {.out = 16}));
  const ValueId b = net.relu(net.conv2d("b", a, {.out = 12, .groups = 4}));
  return std::move(net).finish(net.linear("classifier", net.mean(b, {2, 3}), {.out = 10}));
}

// 4 and 3 units, of which 1.6 and 1.2 would be left: 2 are 8 channels.
TEST(TrainingGroups, RoundsToMultiplesOfChannelsAsPlansDo) {
  const channels::Analysis analysis(grouped_network().program.graph());
  const auto kept = [&](int64_t round_to) {
    std::vector<double> units;
    const std::vector<Group> groups = training_groups(analysis, "coupled", 0.4, round_to);
    for (const Group& group : groups) units.push_back(group.keep * static_cast<double>(group.size));
    return units;
  };
  EXPECT_THAT(kept(8), ElementsAre(2, 2));
  EXPECT_THAT(kept(1), ElementsAre(2, 1));
  for (const int64_t round_to : {int64_t{8}, kHardwareMultiple}) {
    const auto limits = limits_of(analysis, {.round_to = round_to});
    const auto units = kept(round_to);
    for (size_t group = 0; group < units.size(); ++group) {
      const auto whole = static_cast<int64_t>(units[group]);
      EXPECT_EQ(whole % limits[group + 1].multiple, 0) << limits[group + 1].multiple;
    }
  }
}

// a makes twice as many channels as b reads of them.
TEST(TrainingGroups, RoundsToMultiplesOfWhatLayersReadToo) {
  const Model model = program::read_pt2(PRUNEX_TEST_DATA "/prune/cases/glu_gate.pt2");
  const channels::Analysis analysis(model.program.graph());
  const auto& groups = analysis.groups();
  const auto a = std::find_if(groups.begin(), groups.end(), [](const auto& group) { return group.name == "a"; });
  ASSERT_NE(a, groups.end());
  EXPECT_EQ(multiple_of(*a, analysis, 4), 4);
}

TEST(TrainingGroups, UnknownWordsAndSharesAreRefusedWithTheAllowedOnes) {
  for (const char* words : {"", "filters", "filter+", "filter:0", "filter:1.5", "filter:nan", "filter:0.5x",
                            "filter:", "none+filter", "none:0.5", "filter+filter", "coupled+coupled-inner"}) {
    EXPECT_THROW(groups(words), std::invalid_argument) << words;
    EXPECT_THAT(message([&] { groups(words); }), AllOf(HasSubstr(std::string("`groups`: got ") + words),
                                                       HasSubstr("coupled-inner, coupled, filter, channel, shape")))
        << words;
  }
  for (double keep : {0.0, 1.5, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(message([&] { groups("coupled", keep); }), HasSubstr("`keep`"));
  }
}

}  // namespace
}  // namespace prunex::prune
