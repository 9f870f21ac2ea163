#include "prunex/train/pruning/by_importance.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "prunex/train/pruning/evidence.h"

namespace prunex::train {

std::vector<prune::UnitScores> score_by_importance(const prune::ImportanceOptions& importance,
                                                   const std::vector<sparsity::Group>& groups,
                                                   const program::Model& model, const ImageSource& images,
                                                   comm::Communicator& world) {
  TensorDict evidence;
  if (prune::needs_evidence(importance.criterion)) {
    const at::AutoGradMode with_grad(true);
    evidence = collect_evidence(importance.criterion, model, images(), importance.seed, world);
  }
  const auto scorer = prune::make_importance(importance, model.program.graph(), std::move(evidence));
  return scorer->score(groups, model.weights);
}

void prune_by_importance(prune::Pruner& pruner, const prune::ImportanceOptions& importance, const prune::Target& target,
                         int64_t steps, const ImageSource& images, comm::Communicator& world) {
  if (!prune::needs_evidence(importance.criterion)) {
    return pruner.prune(*prune::make_importance(importance, pruner.model().program.graph()), target, steps);
  }
  prune::Pruner tried = pruner;
  for (int64_t i = 1; i <= steps; ++i) {
    const program::Model model = tried.result().model;
    const auto groups = prune::remaining(tried.planner().groups(), tried.alive(), tried.model().weights).groups;
    const auto scores = score_by_importance(importance, groups, model, images, world);
    tried.step(scores, target, static_cast<double>(i) / static_cast<double>(steps));
  }
  pruner = std::move(tried);
}

}  // namespace prunex::train
