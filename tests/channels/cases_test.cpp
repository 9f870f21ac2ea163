// Every case of tests/data/prune: what is grouped and refused, and that a cut equals a mask.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "prunex/program/pt2.h"
#include "tests/channels/case_check.h"
#include "tests/channels/cases.h"
#include "tests/scratch.h"

namespace prunex::channels {
namespace {

using program::Model;

const std::string kFolder = PRUNEX_TEST_DATA "/prune";

std::vector<std::vector<double>> expected_answers(const std::string& name) {
  std::ifstream file(kFolder + "/cases.json");
  return nlohmann::json::parse(file).at(name).get<std::vector<std::vector<double>>>();
}

/// "a:8" for a prunable group, "a:8!" for one that is refused; those of inputs and outputs are left out.
std::vector<std::string> facts(const std::vector<DependencyGroup>& groups) {
  std::vector<std::string> facts;
  for (const DependencyGroup& group : groups) {
    if (group.kind == GroupKind::kInput || group.kind == GroupKind::kOutput) continue;
    facts.push_back(fmt::format("{}:{}{}", group.name, group.size, group.prunable ? "" : "!"));
  }
  return facts;
}

std::string reasons(const std::vector<DependencyGroup>& groups) {
  std::string all;
  for (const DependencyGroup& group : groups) {
    if (!group.prunable) all += fmt::format("{}: {}\n", group.name, group.reason);
  }
  return all;
}

std::vector<std::string> split(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

Model load(const Case& item) {
  return program::read_pt2(kFolder + "/cases/" + item.name + ".pt2");
}

class Cases : public testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { at::set_num_threads(1); }
};

TEST_P(Cases, AnswerAsPythonDoes) {
  const Model model = load(GetParam());
  const auto outputs = run(model, make_inputs(model.program.graph()));
  const auto wanted = expected_answers(GetParam().name);
  ASSERT_EQ(outputs.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const at::Tensor expected = at::tensor(wanted[i], at::kDouble);
    const double error = (outputs[i].flatten().to(at::kDouble) - expected).abs().max().item<double>();
    EXPECT_LT(error, 1e-5 * std::max(1.0, expected.abs().max().item<double>()));
  }
}

TEST_P(Cases, HaveTheGroupsFoundByHand) {
  const Case& item = GetParam();
  const auto groups = Analysis(load(item).program, item.options).groups();
  EXPECT_THAT(facts(groups), testing::UnorderedElementsAreArray(split(item.groups))) << reasons(groups);
  EXPECT_THAT(reasons(groups), testing::HasSubstr(item.reason));
}

void check(const Case& item, uint64_t seed) {
  const Model model = load(item);
  const Analysis analysis(model.program, item.options);
  const auto& removable = analysis.removable();
  if (removable.empty()) return;
  const auto inputs = make_inputs(model.program.graph());
  const auto masks = half(removable, item.mask, seed);
  Model small = cut(model, analysis, sparsity::make_cut(removable, masks, sparsity::shapes_of(model.weights)));
  const auto expected = run(masked(model, analysis, masks, item.mask), inputs);
  EXPECT_LT(difference(run(small, inputs), expected), 1e-5);
  EXPECT_GT(difference(run(model, inputs), expected), 1e-4);
  EXPECT_TRUE(trains(small, inputs));
}

TEST_P(Cases, EqualMaskedOnesWhenCutAndTrain) {
  const Case& item = GetParam();
  for (uint64_t seed : {1, 2}) check(item, seed);
}

TEST_P(Cases, AnswerTheSameFromTheFileOfTheCutNetwork) {
  const Case& item = GetParam();
  const Model model = load(item);
  const Analysis analysis(model.program, item.options);
  const auto& groups = analysis.removable();
  if (groups.empty()) return;
  const auto inputs = make_inputs(model.program.graph());
  const Model small =
      cut(model, analysis, sparsity::make_cut(groups, half(groups, item.mask, 3), sparsity::shapes_of(model.weights)));
  const tests::Scratch folder;
  program::write_pt2(folder / "cut.pt2", small);
  const auto before = run(small, inputs), after = run(program::read_pt2(folder / "cut.pt2"), inputs);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(before[i], after[i]));
}

INSTANTIATE_TEST_SUITE_P(Prune, Cases, testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.id(); });

}  // namespace
}  // namespace prunex::channels
