// Runs of the small problem in which a strategy sees the gradients of every step.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "prunex/comm/layout.h"
#include "prunex/strategies/gradients/gradients.h"
#include "tests/strategies/small_problem.h"

namespace prunex::strategies {

using Make = std::function<std::unique_ptr<Strategy>(Replica&, comm::Hierarchy&)>;

struct GradientRun {
  int64_t steps = 8;
  double momentum = kMomentum;  ///< of the optimizer
  at::ScalarType type = at::kDouble;
  int times = 1;  ///< that each step is made, or its exchange; all but the last are undone
  bool only_exchanges = false;
  int newcomers = 0;   ///< nodes, the last ones, that make no step before the first exchange
  bool states = true;  ///< off where there is none while an exchange is on its way
};

/// One rank after a step.
struct AfterStep {
  TensorDict theta;
  TensorDict state;  ///< names as in Strategy::state()
  Exchange exchange;
  int64_t sent_to_nodes = 0;  ///< bytes of this step that left the node
};

/// Per rank and step: backward, the strategy, SGD.
std::vector<std::vector<AfterStep>> run_steps(const comm::Layout& shape, const Make& make, const GradientRun& run = {});

/// DDP for so many exchanges, then local SGD.
Make post_local(int64_t switch_after, const Reporting& reporting);

/// One step of momentum SGD at learning_rate(step), in place.
void sgd_step(at::Tensor& theta, at::Tensor& velocity, const at::Tensor& gradient, double momentum, int64_t step);

/// The largest difference of two entries.
double worst_gap(const TensorDict& a, const TensorDict& b);

}  // namespace prunex::strategies
