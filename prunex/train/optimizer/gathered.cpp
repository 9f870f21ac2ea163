#include "prunex/train/optimizer/gathered.h"

#include <ATen/ATen.h>

namespace prunex::train {
namespace {

/// Strides of axes of one entry say nothing.
bool lies_like(const at::Tensor& a, const at::Tensor& b) {
  for (int64_t axis = 0; axis < a.dim(); ++axis) {
    if (a.size(axis) != 1 && a.stride(axis) != b.stride(axis)) return false;
  }
  return true;
}

std::vector<at::Tensor> at_places(const std::vector<at::Tensor>& tensors, const std::vector<size_t>& places) {
  std::vector<at::Tensor> found;
  for (const size_t place : places) found.push_back(tensors[place]);
  return found;
}

}  // namespace

Terms TermsInOrder::of(const std::string& parameter) {
  Terms found;
  if (next_ < terms_.anchor.size() && terms_.anchor[next_].key() == parameter) {
    found.anchor = &terms_.anchor[next_].value();
    found.place = next_;
    found.rho1 = terms_.rho1[next_++];
  }
  found.mask = terms_.masks.find(parameter);
  return found;
}

void TermsInOrder::check_all_used() const {
  TORCH_CHECK(next_ == terms_.anchor.size(), "[train] the anchor of '", terms_.anchor.keys()[next_],
              "' belongs to no parameter, or anchors are not in the order of the parameters");
}

at::Tensor gradient_like(const at::Tensor& theta) {
  const at::Tensor& gradient = theta.grad();
  if (gradient.strides() == theta.strides()) return gradient;
  if (lies_like(gradient, theta)) return gradient.as_strided(theta.sizes(), theta.strides());
  return at::empty_like(theta.detach()).copy_(gradient);
}

void Gathered::add(const at::Tensor& parameter, const std::vector<at::Tensor>& its_states, const Terms& terms) {
  if (terms.anchor != nullptr) {
    pulled.push_back(theta.size());
    anchor.push_back(*terms.anchor);
    rho1.push_back(terms.place);
  }
  if (terms.mask != nullptr) {
    masked.push_back(theta.size());
    mask.push_back(*terms.mask);
  }
  theta.push_back(parameter.detach());
  gradient.push_back(gradient_like(parameter));
  states.resize(its_states.size());
  for (size_t s = 0; s < its_states.size(); ++s) states[s].push_back(its_states[s]);
}

void Gathered::pull(std::vector<at::Tensor>& gradients, const StepNumbers& numbers) const {
  if (pulled.empty()) return;
  const auto pulls = at::_foreach_sub(at_places(theta, pulled), anchor);
  at::_foreach_mul_(pulls, at_places(numbers.rho1.to(theta.front().scalar_type()).unbind(), rho1));
  at::_foreach_add_(at_places(gradients, pulled), pulls);
}

void Gathered::approach_anchors(const StepNumbers& numbers) const {
  if (pulled.empty()) return;
  const auto own = at_places(theta, pulled), way = at::_foreach_sub(own, anchor);
  const auto shares = (numbers.rho1 * numbers.rate).to(theta.front().scalar_type()).unbind();
  at::_foreach_mul_(way, at_places(shares, rho1));
  at::_foreach_sub_(own, way);
}

void Gathered::apply_masks(const std::vector<at::Tensor>& tensors) const {
  if (!masked.empty()) at::_foreach_mul_(at_places(tensors, masked), mask);
}

void Gathered::apply_masks() const {
  for (const auto& state : states) apply_masks(state);
  apply_masks(theta);
}

Gatherings gather(Replica& replica, const strategies::LocalTerms& terms, const OptimizerOptions& options,
                  const std::function<bool(const at::Tensor& theta, const std::vector<at::Tensor>& states,
                                           const Terms& terms)>& take) {
  TermsInOrder in_order(terms);
  Gatherings all;
  for (auto& item : replica.weights.params) {
    const Terms own = in_order.of(item.key());
    at::Tensor& theta = item.value();
    if (!theta.grad().defined()) continue;
    std::vector<std::string> names;
    std::vector<at::Tensor> states;
    for (const auto& state : replica.optimizer) {
      const at::Tensor* tensor = state.value().find(item.key());
      if (tensor == nullptr) continue;
      TORCH_CHECK(tensor->sizes() == theta.sizes() && tensor->strides() == theta.strides(), "[train] ", state.key(),
                  " of '", item.key(), "' does not have its parameter's memory layout");
      names.push_back(state.key());
      states.push_back(*tensor);
    }
    TORCH_CHECK(!states.empty(), "[train] the optimizer has no state of '", item.key(), "'");
    if (!take || !take(theta, states, own)) {
      const double decay = options.decay_of(theta);
      Gathered& gathered = all[{theta.scalar_type(), names, decay}];
      gathered.weight_decay = decay;
      gathered.add(theta, states, own);
    }
    theta.mutable_grad().reset();
  }
  in_order.check_all_used();
  return all;
}

}  // namespace prunex::train
