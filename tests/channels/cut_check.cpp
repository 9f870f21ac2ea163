#include "tests/channels/cut_check.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/channels/case_check.h"

namespace prunex::channels {
namespace {

constexpr uint64_t kSeed = 7;

sparsity::Masks choose(const std::vector<sparsity::Group>& groups, Keep keep, at::Generator& generator) {
  sparsity::Masks masks;
  for (const sparsity::Group& group : groups) {
    const int64_t kept = keep == Keep::kOne ? 1 : (group.size + 1) / 2;
    const at::Tensor order = at::randperm(group.size, generator, at::kLong);
    masks.insert(group.name, at::zeros({group.size}, at::kBool).index_fill_(0, order.slice(0, 0, kept), true));
  }
  return masks;
}

}  // namespace

program::Model classify(program::Builder& net, program::ValueId features) {
  const program::ValueId pooled = net.flatten(net.adaptive_avg_pool2d(features, {1, 1}));
  return std::move(net).finish(net.linear("fc", pooled, {.out = 3}));
}

CutCheck check_cut(const program::Model& model, Keep keep, const at::Tensor& images) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(kSeed);
  program::Model whole = copy_of(model, images.scalar_type());
  randomize_norms(whole.weights, generator);
  const Analysis analysis(model.program.graph());
  const auto& groups = analysis.removable();
  const sparsity::Masks masks = choose(groups, keep, generator);
  const sparsity::Cut removed = sparsity::make_cut(groups, masks, sparsity::shapes_of(whole.weights));
  const program::Model small = cut(whole, analysis, removed);
  const auto answers = [&](const program::Model& network) { return std::vector{run(network, {images}).front()}; };
  const auto expected = answers(masked(whole, analysis, masks, Mask::kColumns));
  return {difference(answers(small), expected), difference(answers(whole), expected), removed, small};
}

double cut_error(const program::Model& model, const at::Tensor& images) {
  return std::max(check_cut(model, Keep::kHalf, images).error, check_cut(model, Keep::kOne, images).error);
}

}  // namespace prunex::channels
