// The network that a rank trains: whole at first, smaller after every cut.
#pragma once

#include <optional>

#include "prunex/channels/analysis.h"
#include "prunex/program/program.h"
#include "prunex/sparsity/cut.h"
#include "prunex/tensors.h"
#include "prunex/train/product.h"

namespace prunex::train {

class TrainedNetwork {
 public:
  /// Trains the model's own tensors.
  explicit TrainedNetwork(program::Model model);

  const program::Program& program() const { return program_; }
  const program::Graph& graph() const { return program_.graph(); }
  /// Of the network as it is now: made when it is first asked for, once until the next cut.
  const channels::Analysis& analysis() const;
  Replica& replica() { return replica_; }
  const Replica& replica() const { return replica_; }
  const Size& size() const { return size_; }

  /// What is gone since the start, from the first cut on, if only of nothing: positions count in the whole network.
  /// Names all prunable groups.
  const std::optional<sparsity::Cut>& total() const { return total_; }
  bool is_smaller() const { return total_ && !total_->empty(); }

  /// Program, weights and momentum lose what `step` removes from the network as it is now.
  void cut(const sparsity::Cut& step);

 private:
  program::Program program_;
  mutable std::optional<channels::Analysis> analysis_;
  Replica replica_;
  Size size_;
  std::optional<sparsity::Cut> total_;
};

}  // namespace prunex::train
