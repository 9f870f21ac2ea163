// What strategies have in common that make gradients equal on all ranks in every step: then weights stay equal, too.
#pragma once

#include <cstdint>

#include "prunex/comm/hierarchy.h"
#include "prunex/strategies/strategy.h"

namespace prunex::strategies {

/// When to speak of an exchange: these strategies talk in every step and report so many at once.
struct Reporting {
  int64_t steps = 50;       ///< per report
  int64_t total_steps = 0;  ///< of the run; the last report may be of fewer
};

/// z is theta. Batch norm's statistics stay each rank's own, as they never touch training: re-estimate them before
/// evaluation.
class GradientStrategy : public Strategy {
 public:
  /// Broadcasts rank 0's weights.
  GradientStrategy(Replica& replica, comm::Hierarchy& ranks, const Reporting& reporting);

  const LocalTerms& local_terms() const override { return no_terms_; }
  void before_update(Replica& replica) final;
  Exchange after_update(Replica& replica, int64_t step) override;
  void finish() override {}
  const Weights& product() const override { return product_; }
  const sparsity::Masks& masks() const override { return no_masks_; }
  void cut(const sparsity::Cut& cut, Replica& replica) final;
  State state() const override;
  void load(const State& state, const sparsity::Cut* cut, Replica& replica) override;

 protected:
  /// grads <- about their mean over all ranks, bit-identical on all of them.
  virtual void average_gradients(TensorDict& params) = 0;
  /// Cuts what else the strategy keeps.
  virtual void cut_state(const sparsity::Cut& cut, Replica& replica) = 0;

 private:
  Reporting reporting_;
  int64_t index_ = 0;  // of the last report
  Weights product_;    // the replica's own tensors
  LocalTerms no_terms_;
  sparsity::Masks no_masks_;
};

}  // namespace prunex::strategies
