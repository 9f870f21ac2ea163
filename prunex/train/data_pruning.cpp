#include "prunex/train/data_pruning.h"

#include "prunex/prune/remaining.h"
#include "prunex/train/evidence.h"

namespace prunex::train {

void prune_by_evidence(prune::Pruner& pruner, const prune::ImportanceOptions& importance, const prune::Target& target,
                       int64_t steps, const data::Dataset& images, comm::Communicator& world) {
  for (int64_t i = 1; i <= steps; ++i) {
    const program::Model model = pruner.result().model;
    const TensorDict evidence = collect_evidence(importance.criterion, model, images, importance.seed, world);
    const auto scorer = prune::make_importance(importance, model.program.graph(), evidence);
    const auto groups = prune::remaining(pruner.planner().groups(), pruner.alive(), pruner.model().weights).groups;
    pruner.step(scorer->score(groups, model.weights), target, static_cast<double>(i) / static_cast<double>(steps));
  }
}

}  // namespace prunex::train
