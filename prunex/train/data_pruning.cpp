#include "prunex/train/data_pruning.h"

#include <ATen/core/grad_mode.h>

#include "prunex/prune/remaining.h"
#include "prunex/train/evidence.h"

namespace prunex::train {

void prune_by_importance(prune::Pruner& pruner, const prune::ImportanceOptions& importance, const prune::Target& target,
                         int64_t steps, const std::function<data::Dataset()>& images, comm::Communicator& world) {
  if (!prune::needs_evidence(importance.criterion)) {
    return pruner.prune(*prune::make_importance(importance, pruner.model().program.graph()), target, steps);
  }
  const at::AutoGradMode with_grad(true);
  const data::Dataset seen = images();
  for (int64_t i = 1; i <= steps; ++i) {
    const program::Model model = pruner.result().model;
    const TensorDict evidence = collect_evidence(importance.criterion, model, seen, importance.seed, world);
    const auto scorer = prune::make_importance(importance, model.program.graph(), evidence);
    const auto groups = prune::remaining(pruner.planner().groups(), pruner.alive(), pruner.model().weights).groups;
    pruner.step(scorer->score(groups, model.weights), target, static_cast<double>(i) / static_cast<double>(steps));
  }
}

}  // namespace prunex::train
