// What ranks say to each other, and when.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "prunex/sparsity/group.h"
#include "prunex/tensors.h"

namespace prunex::strategies {

/// What the local optimizer adds to the loss gradient: rho1 * (theta - anchor), Eq. 8, on the mask.
struct LocalTerms {
  TensorDict anchor;          ///< z_node - u per parameter under a proximal term; empty: no term
  std::vector<double> rho1;   ///< one per entry of anchor
  TensorDict masks;           ///< after the freeze: 0/1 per entry of every parameter that has pruned units; else empty
};

/// Root of the sum of squares over tensors of each residual, and the same per tensor.
struct Residuals {
  double r_intra = 0, s_intra = 0, r_inter = 0, s_inter = 0;
};

/// Seconds one rank spent in the phases of an exchange.
struct PhaseSeconds {
  double intra = 0, project = 0, inter = 0, dual = 0;
};

/// What after_update() did. Of a step without an exchange only `exchanged` is meaningful.
struct Exchange {
  bool exchanged = false;
  int64_t index = 0;           ///< from 1
  bool frozen = false;         ///< masks are final from this exchange on
  bool converged = false;      ///< the residuals are below the tolerance: training may stop
  double keep = 1.0;           ///< kept units / all units of the groups
  int64_t mask_changes = 0;    ///< units whose global mask changed
  Residuals residuals;
  std::vector<std::pair<std::string, Residuals>> residuals_per_tensor;  ///< tensors in ADMM
  double rho1 = 0, rho2 = 0;   ///< means over the tensors in ADMM, as used in this exchange
  int64_t inter_payload_bytes = 0;  ///< bytes a node hands to the links between nodes
  PhaseSeconds seconds;
};

/// A way of keeping replicas together, behind two hooks around the optimizer's update. One object per rank; the calls
/// are collective.
class Strategy {
 public:
  virtual ~Strategy() = default;

  /// For the optimizer; valid until the next exchange.
  virtual const LocalTerms& local_terms() const = 0;
  /// After backward, before the optimizer: may change gradients.
  virtual void before_update(Replica& replica) = 0;
  /// After the optimizer's step number `step` (from 1): may change weights, buffers and momentum.
  virtual Exchange after_update(Replica& replica, int64_t step) = 0;
  /// Masks the product if the run ends before the freeze, so that what ships is sparse.
  virtual void finish(Replica& replica) = 0;
  /// z: what is evaluated, saved and shipped.
  virtual const Weights& product() const = 0;
  /// The groups' units that are alive in the product.
  virtual const sparsity::Masks& masks() const = 0;
};

}  // namespace prunex::strategies
