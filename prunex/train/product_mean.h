// The exponential mean of what strategies agree on.
#pragma once

#include <cstdint>

#include "prunex/sparsity/cut.h"
#include "prunex/tensors.h"

namespace prunex::train {

/// mean <- D^n mean + (1 - D^n) z at every exchange, n steps after the one before; the first z as it is. So D is a
/// decay per step, whatever the strategy and its `local_steps`, and all ranks have the same mean without a message. Of
/// parameters; buffers are z's.
class ProductMean {
 public:
  /// `decay`: D, in [0, 1); 0: there is no mean.
  explicit ProductMean(double decay) : decay_(decay) {}

  ProductMean copy() const;

  void add(const Weights& product, int64_t steps);
  /// The network lost this.
  void cut(const sparsity::Cut& cut);
  /// The mean where there is one, else the product.
  Weights of(const Weights& product) const;

  /// What the next steps depend on.
  void save(TensorDict& state) const;
  /// `params`: the network's as it is now. std::invalid_argument names a tensor of another shape, or one that is
  /// missing beside others.
  void load(const TensorDict& state, const TensorDict& params);

 private:
  double decay_;
  TensorDict mean_;  // empty before the first product
};

}  // namespace prunex::train
