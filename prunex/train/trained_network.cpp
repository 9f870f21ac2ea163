#include "prunex/train/trained_network.h"

#include <utility>

#include "prunex/prune/groups.h"
#include "prunex/prune/surgery.h"
#include "prunex/sparsity/projection.h"
#include "prunex/train/sgd.h"

namespace prunex::train {

TrainedNetwork::TrainedNetwork(program::Model model)
    : program_(std::move(model.program)), replica_{model.weights, zero_momentum(model.weights.params)} {
  const auto groups = prune::removable_groups(prune::dependency_groups(graph()));
  total_ = sparsity::make_cut(groups, sparsity::full_masks(groups), sparsity::shapes_of(replica_.weights));
}

Size TrainedNetwork::size() const {
  return size_of(graph(), replica_.weights);
}

void TrainedNetwork::cut(const sparsity::Cut& step) {
  if (step.empty()) return;
  program_ = prune::cut_program(program_, step);
  sparsity::apply_cut(replica_.weights, step);
  sparsity::apply_cut(replica_.momentum, step);
  total_ = sparsity::compose(total_, step);
}

std::vector<int64_t> input_shape(const program::Graph& graph) {
  std::vector<int64_t> shape;
  for (const auto& extent : graph.values[graph.inputs.front()].shape) shape.push_back(extent.factor);
  return shape;
}

}  // namespace prunex::train
