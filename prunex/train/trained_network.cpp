#include "prunex/train/trained_network.h"

#include <utility>

#include "prunex/channels/cut.h"
#include "prunex/sparsity/projection.h"
#include "prunex/train/sgd.h"

namespace prunex::train {
namespace {

sparsity::Cut cut_of_nothing(const TrainedNetwork& network) {
  const auto& groups = network.analysis().removable();
  return sparsity::make_cut(groups, sparsity::full_masks(groups), sparsity::shapes_of(network.replica().weights));
}

}  // namespace

TrainedNetwork::TrainedNetwork(program::Model model)
    : program_(std::move(model.program)),
      replica_{model.weights, zero_momentum(model.weights.params)},
      size_(size_of(graph(), replica_.weights)) {}

const channels::Analysis& TrainedNetwork::analysis() const {
  if (!analysis_) analysis_.emplace(program_);
  return *analysis_;
}

void TrainedNetwork::cut(const sparsity::Cut& step) {
  if (!total_) total_ = cut_of_nothing(*this);
  if (step.empty()) return;
  program_ = channels::cut_program(analysis(), step);
  analysis_.reset();
  sparsity::apply_cut(replica_.weights, step);
  sparsity::apply_cut(replica_.momentum, step);
  total_ = sparsity::compose(*total_, step);
  size_ = size_of(graph(), replica_.weights);
}

}  // namespace prunex::train
