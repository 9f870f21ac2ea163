#include "prunex/train/evaluator.h"

#include "prunex/train/batch_statistics.h"

namespace prunex::train {

Weights Evaluator::with_statistics(const program::Program& program, const Weights& weights) const {
  return with_estimated_statistics(program, weights, calibration_, world(),
                                   files_by_node_ ? ranks_.node.get() : nullptr);
}

Evaluation Evaluator::evaluate(const Weights& weights, const data::Dataset& dataset, bool of_node) const {
  return train::evaluate(network_.program(), weights, dataset, world(), of_node ? ranks_.node.get() : nullptr);
}

}  // namespace prunex::train
