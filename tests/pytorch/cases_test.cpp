// Every case of tests/data/prune, cut, in stock PyTorch.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "prunex/program/program.h"
#include "prunex/program/pt2.h"
#include "tests/channels/cases.h"
#include "tests/python.h"
#include "tests/scratch.h"

namespace prunex::channels {
namespace {

using program::Model;

/// Half of the case's units are cut; its file is FOLDER/ID.pt2.
Model write_half(const Case& item, const std::string& folder) {
  const Model model = program::read_pt2(PRUNEX_TEST_DATA "/prune/cases/" + item.name + ".pt2");
  const Analysis analysis(model.program, item.options);
  const auto& groups = analysis.removable();
  const Model small =
      cut(model, analysis, sparsity::make_cut(groups, half(groups, item.mask, 4), sparsity::shapes_of(model.weights)));
  Model eval{program::Program(program::in_mode(small.program.graph(), program::Mode::kEval)), small.weights};
  program::write_pt2(folder + "/" + item.id() + ".pt2", eval);
  return eval;
}

TEST(CutCases, AnswerTheSameInStockPython) {
  const tests::Scratch folder;
  std::map<std::string, Model> models;
  for (const Case& item : all_cases()) models.emplace(item.id(), write_half(item, folder.path()));
  PRUNEX_RUN_PYTHON("tests/pytorch/run_cases.py", folder.path());
  std::ifstream file(folder / "answers.json");
  const auto answers = nlohmann::json::parse(file);
  for (const auto& [name, model] : models) {
    const auto got = run(model, make_inputs(model.program.graph()));
    const auto wanted = answers.at(name).get<std::vector<std::vector<double>>>();
    ASSERT_EQ(got.size(), wanted.size()) << name;
    for (size_t i = 0; i < got.size(); ++i) {
      const at::Tensor expected = at::tensor(wanted[i], at::kDouble);
      EXPECT_LT(difference({got[i].flatten().to(at::kDouble)}, {expected}), 1e-5) << name;
    }
  }
}

}  // namespace
}  // namespace prunex::channels
