#include "prunex/admm/updates.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

namespace prunex::admm {
namespace {

at::Tensor squared_norm_on_device(const at::Tensor& a) {
  return a.to(at::kDouble).square().sum();
}

at::Tensor without_holes(const at::Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
}

/// Sum of squares in four independent chains, so that the loop is not bound by the latency of one addition.
template <class Entry>
double sum_of(int64_t n, const Entry& entry) {
  double sums[4] = {0, 0, 0, 0};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (int64_t lane = 0; lane < 4; ++lane) {
      const double x = entry(i + lane);
      sums[lane] += x * x;
    }
  }
  for (; i < n; ++i) sums[0] += entry(i) * entry(i);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

}  // namespace

void update_node_candidate(at::Tensor& sum, const at::Tensor& z, const at::Tensor& v, const NodeUpdate& node) {
  sum.mul_(node.rho1);
  if (node.rho2 != 0) sum.add_(z, node.rho2).sub_(v, node.rho2);
  sum.div_(node.ranks * node.lambda + node.ranks * node.rho1 + node.rho2);
}

void update_node_candidate_as_printed(at::Tensor& sum, const at::Tensor& z_node, const at::Tensor& v, double rho1,
                                      double rho2, double lambda_over_nodes) {
  sum.mul_(rho1);
  if (rho2 != 0) sum.add_(z_node, rho2).sub_(v, rho2);
  sum.div_(lambda_over_nodes + rho1 + rho2);
}

void update_u(at::Tensor& u, const at::Tensor& theta, const at::Tensor& z_node) {
  u.add_(theta).sub_(z_node);
}

void update_v(at::Tensor& v, const at::Tensor& z_node, const at::Tensor& z, double share) {
  v.add_(z_node, share).sub_(z, share);
}

void rescale_dual(at::Tensor& dual, double rho_old, double rho_new) {
  if (rho_old != rho_new && rho_new != 0) dual.mul_(rho_old / rho_new);
}

void outer_step(at::Tensor& z, const at::Tensor& mean, at::Tensor& b, double rate, double momentum) {
  const at::Tensor d = z - mean;
  b.mul_(momentum).add_(d);
  z.sub_(d, rate).sub_(b, rate * momentum);
}

double squared_norm(const at::Tensor& a) {
  if (!a.is_cpu()) return squared_norm_on_device(a).item<double>();
  const at::Tensor dense = without_holes(a);
  return AT_DISPATCH_FLOATING_TYPES(dense.scalar_type(), "squared_norm", [&] {
    const scalar_t* x = dense.const_data_ptr<scalar_t>();
    return sum_of(dense.numel(), [x](int64_t i) { return static_cast<double>(x[i]); });
  });
}

double squared_distance(const at::Tensor& a, const at::Tensor& b) {
  if (!a.is_cpu() || a.strides() != b.strides()) return squared_norm(a.to(at::kDouble) - b);
  const at::Tensor dense_a = without_holes(a), dense_b = without_holes(b);
  return AT_DISPATCH_FLOATING_TYPES(dense_a.scalar_type(), "squared_distance", [&] {
    const scalar_t* x = dense_a.const_data_ptr<scalar_t>();
    const scalar_t* y = dense_b.const_data_ptr<scalar_t>();
    return sum_of(dense_a.numel(), [x, y](int64_t i) { return static_cast<double>(x[i]) - static_cast<double>(y[i]); });
  });
}

void NormReader::norm(double& target, const at::Tensor& a, double factor) {
  if (a.is_cpu()) return void(target = factor * squared_norm(a));
  wanted_.push_back({&target, factor});
  norms_.push_back(squared_norm_on_device(a));
}

void NormReader::distance(double& target, const at::Tensor& a, const at::Tensor& b, double factor) {
  if (a.is_cpu()) return void(target = factor * squared_distance(a, b));
  norm(target, a.to(at::kDouble) - b, factor);
}

void NormReader::read() {
  if (norms_.empty()) return;
  const at::Tensor norms = at::stack(norms_).cpu();
  for (size_t i = 0; i < wanted_.size(); ++i)
    *wanted_[i].target = wanted_[i].factor * norms.const_data_ptr<double>()[i];
  wanted_.clear();
  norms_.clear();
}

}  // namespace prunex::admm
