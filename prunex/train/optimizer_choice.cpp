#include "prunex/train/optimizer_choice.h"

namespace prunex::train {
namespace {

struct UsualNumbers {
  double learning_rate, momentum, weight_decay, eps;
};

/// Where PyTorch has the optimizer, its defaults, but SGD's; Muon shares AdamW's rate and weight decay (Optimizer).
UsualNumbers usual_of(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::kSgd:
    case Optimizer::kNesterov:
      return {0.1, 0.9, 5e-4, 1e-8};
    case Optimizer::kAdamW:
      return {1e-3, 0.9, 0.01, 1e-8};
    case Optimizer::kLamb:
      return {5e-3, 0.9, 0.01, 1e-6};
    case Optimizer::kMuon:
      return {1e-3, 0.95, 0.01, 1e-8};
  }
  return {};
}

/// The strategy has the momentum, of gradients alone.
bool gathers_momentum(const TrainOptions& options) {
  return options.strategy == "top_k" && options.top_k.dgc;
}

}  // namespace

double amplifying_momentum(const TrainOptions& options) {
  const bool sums = options.optimizer == Optimizer::kSgd || options.optimizer == Optimizer::kNesterov;
  return sums ? options.momentum.value_or(usual_of(options.optimizer).momentum) : 0;
}

double weight_beside_momentum(const TrainOptions& options) {
  return gathers_momentum(options) ? 1 / (1 - amplifying_momentum(options)) : 1;
}

OptimizerOptions optimizer_of(const TrainOptions& options) {
  const UsualNumbers usual = usual_of(options.optimizer);
  return {.learning_rate = options.learning_rate.value_or(usual.learning_rate),
          .momentum = gathers_momentum(options) ? 0 : options.momentum.value_or(usual.momentum),
          .weight_decay = options.weight_decay.value_or(usual.weight_decay),
          .decay_vectors = options.decay_vectors,
          .rule = options.optimizer,
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .eps = options.eps.value_or(usual.eps),
          .clip_norm = options.clip_norm};
}

OptimizerOptions optimizer_at(const TrainOptions& options, const Phase& phase, int64_t step) {
  OptimizerOptions now = optimizer_of(options);
  now.learning_rate = learning_rate_at(phase, step);
  now.weight_decay = phase.weight_decay;
  now.weight_decay *= weight_beside_momentum(options);
  return now;
}

}  // namespace prunex::train
