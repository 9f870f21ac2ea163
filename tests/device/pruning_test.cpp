// Pruning on the device: what the CPU removes, by every criterion, and the CPU's weights.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "prunex/channels/analysis.h"
#include "prunex/prune/pruner.h"
#include "prunex/train/device.h"
#include "prunex/train/pruning/by_importance.h"
#include "tests/device/pretend_device.h"
#include "tests/device/same_bits.h"
#include "tests/train/small_network.h"

namespace prunex::train {
namespace {

prune::Pruned pruned(const program::Model& model, const std::string& importance) {
  const channels::Analysis analysis(model.program);
  prune::Pruner pruner(model, analysis, {.scope = prune::Scope::kGlobal});
  const auto world = comm::make_solo("world");
  prune_by_importance(
      pruner, prune::importance_named(importance), {.kind = prune::Target::Kind::kRatio, .share = 0.5}, 2,
      [] { return noise_images(20); }, *world);
  return pruner.result();
}

class PruningOnDevice : public testing::TestWithParam<std::string> {};

TEST_P(PruningOnDevice, RemovesWhatTheCpuDoes) {
  at::set_num_threads(1);
  const auto here = pruned(small_network(), GetParam());
  const auto there = pruned(on_device(small_network(), tests::pretend_device()), GetParam());
  EXPECT_EQ(sparsity::hash(there.cut), sparsity::hash(here.cut));
  EXPECT_LT(here.after.parameters, here.before.parameters);
  tests::expect_same_bits(here.model.weights.params, there.model.weights.params);
  tests::expect_same_bits(here.model.weights.buffers, there.model.weights.buffers);
}

INSTANTIATE_TEST_SUITE_P(All, PruningOnDevice, testing::ValuesIn(prune::importance_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace prunex::train
