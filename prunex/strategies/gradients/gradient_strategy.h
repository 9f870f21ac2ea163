// What the strategies of gradients have in common.
#pragma once

#include <cstdint>

#include "prunex/comm/hierarchy.h"
#include "prunex/strategies/gradients/gradients.h"
#include "prunex/strategies/strategy.h"
#include "prunex/tensors.h"

namespace prunex::strategies {

/// z is theta. Batch norm's statistics stay each rank's own, as they never touch training: re-estimate them before
/// evaluation.
class GradientStrategy : public Strategy {
 public:
  GradientStrategy(Replica& replica, comm::Hierarchy& ranks, const Reporting& reporting,
                   Begin begin = Begin::kBroadcast);

  const LocalTerms& local_terms() const override { return no_terms_; }
  void before_update(Replica& replica) final;
  Exchange after_update(Replica& replica, int64_t step) override;
  void finish() override {}
  const Weights& product() const override { return product_; }
  const sparsity::Masks& masks() const override { return no_masks_; }
  void cut(const sparsity::Cut& cut, Replica& replica) final;
  State state() const override;
  bool in_step() const final { return true; }
  void load(const State& state, const sparsity::Cut* cut, Replica& replica) final;
  void go_back(const State& before) final;

 protected:
  /// grads <- about their mean over all ranks, bit-identical on all of them.
  virtual void average_gradients(TensorDict& params) = 0;
  /// Cuts what else the strategy keeps.
  virtual void cut_state(const sparsity::Cut& cut, Replica& replica) = 0;
  /// Takes over what else state() holds; a step that was under way is forgotten.
  virtual void restore_own(const State& state) = 0;

 private:
  Reporting reporting_;
  int64_t index_ = 0;  // of the last report
  Weights product_;    // the replica's own tensors
  LocalTerms no_terms_;
  sparsity::Masks no_masks_;
};

}  // namespace prunex::strategies
