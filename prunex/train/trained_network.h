// The network that a rank trains: whole at first, smaller after every cut.
#pragma once

#include <cstdint>
#include <vector>

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
  Replica& replica() { return replica_; }
  const Replica& replica() const { return replica_; }
  Size size() const;

  /// What is gone since the start: positions count in the whole network. Names all prunable groups.
  const sparsity::Cut& total() const { return total_; }
  bool is_cut() const { return !total_.empty(); }

  /// Program, weights and momentum lose what `step` removes from the network as it is now.
  void cut(const sparsity::Cut& step);

 private:
  program::Program program_;
  Replica replica_;
  sparsity::Cut total_;
};

/// 1 x C x H x W of a program's images.
std::vector<int64_t> input_shape(const program::Graph& graph);

}  // namespace prunex::train
