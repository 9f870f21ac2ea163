// Parameters with their gradients, states and local terms, for operations on all of them at once.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "prunex/train/optimizer.h"

namespace prunex::train {

/// One parameter's share of the local terms; null pointers where there is none.
struct Terms {
  const at::Tensor* anchor = nullptr;
  const at::Tensor* mask = nullptr;
  double rho1 = 0;
  size_t place = 0;  ///< of the anchor
};

/// Anchors stand in the order of the parameters, so one pass over both finds them without a search.
class TermsInOrder {
 public:
  explicit TermsInOrder(const strategies::LocalTerms& terms) : terms_(terms) {}

  Terms of(const std::string& parameter);
  /// Throws c10::Error if an anchor belongs to no parameter.
  void check_all_used() const;

 private:
  const strategies::LocalTerms& terms_;
  size_t next_ = 0;
};

/// The gradient in the memory layout of its parameter.
at::Tensor gradient_like(const at::Tensor& theta);

/// Parameters of one type and weight decay.
struct Gathered {
  double weight_decay = 0;
  std::vector<at::Tensor> theta, gradient, anchor, mask;
  std::vector<std::vector<at::Tensor>> states;  ///< by state, in the order of the optimizer's
  std::vector<size_t> rho1;                     ///< places of the anchors' own
  std::vector<size_t> pulled, masked;           ///< places of those that have an anchor, a mask

  void add(const at::Tensor& parameter, const std::vector<at::Tensor>& its_states, const Terms& terms);
  /// gradients += rho1 (theta - anchor), each product rounded before it is added.
  void pull(std::vector<at::Tensor>& gradients, const StepNumbers& numbers) const;
  /// theta -= rate rho1 (theta - anchor)
  void approach_anchors(const StepNumbers& numbers) const;
  void apply_masks(const std::vector<at::Tensor>& tensors) const;
  /// To theta and the states.
  void apply_masks() const;
};

/// By type, by the names of the states that parameters have, and by weight decay.
using Gatherings = std::map<std::tuple<at::ScalarType, std::vector<std::string>, double>, Gathered>;

/// All parameters that have a gradient, which is released. `take`: where it returns true, the parameter is done.
Gatherings gather(Replica& replica, const strategies::LocalTerms& terms, const OptimizerOptions& options,
                  const std::function<bool(const at::Tensor& theta, const std::vector<at::Tensor>& states,
                                           const Terms& terms)>& take = nullptr);

/// The rules. sgd_step() walks through the CPU's memory itself.
void sgd_step(Replica& replica, const strategies::LocalTerms& terms, const OptimizerOptions& options,
              const StepNumbers* numbers);
void adamw_update(Gathered& all, const OptimizerOptions& options, const StepNumbers& numbers);
void lamb_update(Gathered& all, const OptimizerOptions& options, const StepNumbers& numbers);
void muon_update(Gathered& all, const OptimizerOptions& options, const StepNumbers& numbers);

}  // namespace prunex::train
