// Every case of tests/data/prune, pruned by half: the counts are those of the cut network, which equals the masked one.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "prunex/program/macs.h"
#include "prunex/program/pt2.h"
#include "prunex/prune/pruner.h"
#include "tests/channels/cases.h"

namespace prunex::prune {
namespace {

using channels::all_cases;
using channels::Case;
using channels::Mask;
using channels::masked_error;
using program::Model;

class CasePlans : public testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { at::set_num_threads(1); }
};

TEST_P(CasePlans, HalveExactly) {
  const Case& item = GetParam();
  const Model model = program::read_pt2(PRUNEX_TEST_DATA "/prune/cases/" + item.name + ".pt2");
  Pruner pruner(model, {model.program, item.options}, {});
  pruner.prune(*make_importance(importance_named("l2"), model.program.graph()), {.share = 0.5}, 2);
  const Pruned pruned = pruner.result();
  EXPECT_EQ(pruned.before.parameters, program::parameter_count(model.weights));
  EXPECT_EQ(pruned.before.macs, program::macs(model.program.graph()));
  EXPECT_EQ(pruned.after.parameters, program::parameter_count(pruned.model.weights));
  EXPECT_EQ(pruned.after.macs, program::macs(pruned.model.program.graph()));
  for (const Decision& decision : pruned.decisions) {
    const bool half = decision.kept == std::max<int64_t>(1, (decision.units + 1) / 2);
    EXPECT_TRUE(half || !decision.reason.empty()) << decision.group << ": " << decision.kept;
  }
  if (channels::needs_twins(item.mask)) return;
  EXPECT_LT(masked_error(pruned.model, model, {model.program, item.options}, pruner.alive(), item.mask), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(All, CasePlans, testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.id(); });

}  // namespace
}  // namespace prunex::prune
