// The network a run trains, ready for its data.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "prunex/channels/analysis.h"
#include "prunex/data/dataset.h"
#include "prunex/program/program.h"
#include "prunex/sparsity/cut.h"
#include "prunex/tensors.h"
#include "prunex/train/options.h"
#include "prunex/train/product.h"

namespace prunex::train {

struct Network {
  program::Model model;
  channels::Analysis analysis;       ///< of its program
  std::vector<std::string> remarks;  ///< sentences on what of it does not train or cannot be cut
};

/// The model the options name, with its weights: built in for the data's image size and classes, or read from a .pt2
/// file; then `weights`. Parameters are leaves that require gradients; 4-d ones are channels_last in memory.
/// Throws std::invalid_argument if model, weights and data do not fit together, the shapes that a file states are not
/// those it computes, or nothing can train.
Network load_network(const TrainOptions& options, const data::Dataset& training);

/// Throws std::invalid_argument, naming `source`, unless the program takes one float NCHW image batch of the set's
/// size and returns logits for at least its classes.
void check_fits(const program::Graph& graph, const data::Dataset& dataset, const std::string& source);

/// Side of the square images that the program takes; 0 if these are no squares.
int64_t image_size_of(const program::Graph& graph);

/// In the layout that convolutions run fastest in; without gradients.
at::Tensor in_fast_layout(const at::Tensor& weight);

/// Copies a safetensors file into the weights; names and shapes must match. `aliases`: other names of tied weights, as
/// a graph has them.
void load_weights(Weights& weights, const std::string& path, const std::map<std::string, std::string>& aliases = {});

class TrainedNetwork {
 public:
  /// Trains the model's own tensors; `analysis` is of its program.
  TrainedNetwork(program::Model model, channels::Analysis analysis, Optimizer optimizer = Optimizer::kSgd);

  const program::Program& program() const { return program_; }
  const program::Graph& graph() const { return program_.graph(); }
  /// Of the network as it is now: made anew when it is first asked for after a cut.
  const channels::Analysis& analysis() const;
  const channels::GroupOptions& group_options() const { return group_options_; }
  Replica& replica() { return replica_; }
  const Replica& replica() const { return replica_; }
  const prune::Size& size() const { return size_; }

  /// What is gone since the start, from the first cut on, if only of nothing: positions count in the whole network.
  /// Names all prunable groups.
  const std::optional<sparsity::Cut>& total() const { return total_; }
  bool is_smaller() const { return total_ && !total_->empty(); }

  /// The model that ships: `product` without what `cut` removes, whether or not it was trained small.
  program::Model compact(const Weights& product, const sparsity::Cut& cut) const;

  /// The network as it is now, with these weights, without what `step` removes.
  program::Model without(const sparsity::Cut& step, const Weights& weights) const;

  /// Program, weights and optimizer lose what `step` removes from the network as it is now.
  void cut(const sparsity::Cut& step);

 private:
  program::Program program_;
  const channels::GroupOptions group_options_;
  mutable std::optional<channels::Analysis> analysis_;
  Replica replica_;
  prune::Size size_;
  std::optional<sparsity::Cut> total_;
};

}  // namespace prunex::train
