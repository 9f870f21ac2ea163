// What moves theta once the gradients of a local step are there.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "prunex/strategies/strategy.h"
#include "prunex/tensors.h"

namespace prunex::train {

/// Whether the anchor's pull rho1 (theta - anchor) and weight decay are parts of the gradient, as SGD has them, or move
/// theta by themselves before the rule does, theta -= lr rho1 (theta - anchor): where a rule sets the length of the
/// gradient, the pull would drown it (docs/recipes.md).
enum class Optimizer {
  kSgd,       ///< torch.optim.SGD
  kNesterov,  ///< the same with nesterov=True
  kAdamW,     ///< torch.optim.AdamW; pull and decay by themselves, as in those below
  kLamb,      ///< You et al., arXiv 1904.00962v5, algorithm 2, with phi(x) = x; every parameter is a layer
  kMuon,      ///< torch.optim.Muon, adjust_lr_fn="match_rms_adamw", for matrices; AdamW for the rest: fresh_state()
};

struct OptimizerOptions {
  double learning_rate = 0.1;
  double momentum = 0.9;  ///< sgd, nesterov, muon
  double weight_decay = 0;
  bool decay_vectors = true;  ///< or what has two dimensions or more alone
  Optimizer rule = Optimizer::kSgd;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  ///< adamw, lamb, and what muon leaves to adamw
  double clip_norm = 0;                           ///< of all gradients of the rank together; 0: off

  double decay_of(const at::Tensor& theta) const { return decay_vectors || theta.dim() > 1 ? weight_decay : 0; }
};

/// What of an update changes from step to step or from exchange to exchange, as tensors on a device: a step that was
/// recorded reads them anew.
struct StepNumbers {
  at::Tensor rate;  ///< of no dimension, double
  at::Tensor rho1;  ///< LocalTerms', double; undefined without an anchor
  at::Tensor step;  ///< Replica::updates, of no dimension, double
};

/// Of this step, on the device of the weights; returns before they are there.
StepNumbers numbers_of(const Replica& replica, const strategies::LocalTerms& terms, const OptimizerOptions& options);

/// The rule's memory before the first step, zeros in the memory layout of their parameters: `momentum` of sgd, nesterov
/// and muon's matrices, `exp_avg` and `exp_avg_sq` of all others. Muon's matrices are the parameters of two dimensions
/// or more but the last one, which in usual networks is the head; filters are flattened to outputs x everything else.
OptimizerState fresh_state(const TensorDict& params, Optimizer rule = Optimizer::kSgd);

/// One step of every parameter that has a gradient. SGD, in one pass over its memory:
///   g = grad + decay_of(theta) theta + rho1 (theta - anchor);  v = (momentum v + g) mask;  theta = (theta - lr v) mask
/// Masks hold theta and all states of every rule. States, anchors and masks have the memory layout of their parameter;
/// gradients may have any. Releases the gradients. Counts itself in Replica::updates, which bias corrections go by,
/// unless the caller does and gives `numbers`: on a device they stand in for the learning rate, rho1 and the count.
void optimizer_step(Replica& replica, const strategies::LocalTerms& terms, const OptimizerOptions& options,
                    const StepNumbers* numbers = nullptr);

/// torch.nn.utils.clip_grad_norm_ of the parameters' gradients under the masks; on the device where they lie.
void clip_gradients(TensorDict& params, const TensorDict& masks, double most);

/// For loops with an optimizer of their own: adds the proximal term to the gradients and masks them. `rates`, the
/// learning rate of every parameter, is for rules other than SGD: the pull moves theta by itself then, see Optimizer.
/// After the freeze such a loop must also mask its momentum once.
void add_local_terms(Weights& weights, const strategies::LocalTerms& terms,
                     const std::map<std::string, double>* rates = nullptr);

}  // namespace prunex::train
