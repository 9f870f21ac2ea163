// The regulariser of a run: when it acts, how strongly, and when its coefficients are new.
#pragma once

#include <cstdint>

#include "prunex/prune/regularizer.h"
#include "prunex/train/options.h"
#include "prunex/train/schedule.h"

namespace prunex::train {

class SparseTraining {
 public:
  /// `classes`: of the data; what an untrained network loses follows from it.
  SparseTraining(const TrainOptions& options, const RunLength& length, const channels::Analysis& analysis,
                 int64_t classes);

  /// Between backward and the optimizer of a step.
  void add_to_gradients(TensorDict& params, int64_t step) const;

  /// After step 0 and after every exchange: new coefficients from the weights that all ranks share, if a step before
  /// the next exchange will want them.
  void refresh(const Weights& weights, int64_t exchange, int64_t step);

  /// The network was cut, and this is its graph now.
  void cut(const channels::Analysis& analysis, const sparsity::Cut& cut) { regularizer_.cut(analysis, cut); }

  /// Adds to a checkpoint what the next steps depend on; finds it there.
  void save(TensorDict& state) const;
  void load(const TensorDict& state);

 private:
  bool acts_in(int64_t step) const;

  SparseOptions options_;
  int64_t local_steps_;
  RunLength length_;
  prune::Regularizer regularizer_;
};

}  // namespace prunex::train
