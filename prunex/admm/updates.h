// The element-wise updates of H-SADMM, one function per equation. They know nothing of ranks or shards: a tensor may be
// a whole parameter or a piece of one. All work in place on tensors of equal shape; docs/algorithm.md has the
// equations.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace prunex::admm {

/// What Eq. 9 needs besides tensors.
struct NodeUpdate {
  double rho1 = 0;
  double rho2 = 0;    ///< 0 on a single node
  double ranks = 1;   ///< P, the ranks of this node
  double lambda = 0;  ///< weight decay that acts on z instead of the loss
};

/// Eq. 9, corrected: sum <- [rho1 sum + rho2 (z - v)] / (P lambda + P rho1 + rho2), `sum` being the node's sum of theta
/// + u.
void update_node_candidate(at::Tensor& sum, const at::Tensor& z, const at::Tensor& v, const NodeUpdate& node);

/// Eq. 9 as the paper prints it, to show what it does: sum <- [rho1 sum + rho2 (z_node - v)] / (lambda/M + rho1 +
/// rho2), z_node being the node's own of the last iteration and `lambda_over_nodes` lambda/M. With P >= 2 it ends away
/// from the minimum, or diverges where rho1 is large next to the curvature.
void update_node_candidate_as_printed(at::Tensor& sum, const at::Tensor& z_node, const at::Tensor& v, double rho1,
                                      double rho2, double lambda_over_nodes);

/// Eq. 12: u += theta - z_node.
void update_u(at::Tensor& u, const at::Tensor& theta, const at::Tensor& z_node);

/// Eq. 13: v += share (z_node - z).
void update_v(at::Tensor& v, const at::Tensor& z_node, const at::Tensor& z, double share = 1);

/// Scaled duals keep their meaning when the penalty changes: dual *= rho_old / rho_new (Boyd et al. 2011,
/// section 3.4.1).
void rescale_dual(at::Tensor& dual, double rho_old, double rho_new);

/// DiLoCo's outer step (Nesterov momentum, arXiv 2311.08105): d = z - mean; b = momentum b + d; z -= rate (d + momentum
/// b).
void outer_step(at::Tensor& z, const at::Tensor& mean, at::Tensor& b, double rate, double momentum);

/// |a|^2 and |a - b|^2 in double.
double squared_norm(const at::Tensor& a);
double squared_distance(const at::Tensor& a, const at::Tensor& b);

/// Many of them: of tensors on the CPU at once, of others together when they are read, so that the host waits once.
class NormReader {
 public:
  /// target <- factor |a|^2 or factor |a - b|^2, when read() is called at the latest. Targets must live until then.
  void norm(double& target, const at::Tensor& a, double factor = 1);
  void distance(double& target, const at::Tensor& a, const at::Tensor& b, double factor = 1);
  void read();

 private:
  struct Wanted {
    double* target;
    double factor;
  };

  std::vector<Wanted> wanted_;
  std::vector<at::Tensor> norms_;  // 0-dimensional, on the device
};

}  // namespace prunex::admm
