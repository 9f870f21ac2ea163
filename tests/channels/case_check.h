// Cuts of networks of any kind against masked ones.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "prunex/channels/analysis.h"
#include "prunex/program/program.h"
#include "prunex/sparsity/cut.h"

namespace prunex::channels {

/// What the whole network must be, so that removed units change nothing else.
enum class Mask {
  kColumns,      ///< layers read nothing of the removed units
  kAll,          ///< besides, all parameters of the removed units are zero: needed where activations are multiplied
  kTwins,        ///< units of inexact groups are copies of kept ones that nothing reads: means and variances stay
  kColumnTwins,  ///< they are zero, and what would read them are copies: means and variances of weights stay
};

/// Whether units are removed in pairs of one that stays and one that goes.
inline bool needs_twins(Mask mask) {
  return mask == Mask::kTwins || mask == Mask::kColumnTwins;
}

/// A network with weights of its own, detached, those of floating point as `type`.
program::Model copy_of(const program::Model& model, std::optional<at::ScalarType> type = std::nullopt);

/// Norms, scales and last layers that are not at their neutral start.
void randomize_norms(Weights& weights, at::Generator& generator);

/// Inputs of the shapes that a graph records, for 2 images: sin(linspace(-1000, 1000)), or 0, 1 ... 6 and again.
std::vector<at::Tensor> make_inputs(const program::Graph& graph);

/// All outputs in eval mode.
std::vector<at::Tensor> run(const program::Model& model, const std::vector<at::Tensor>& inputs);

/// Half of the units of every prunable group survive, chosen by `seed`; for twins units 2i or 2i + 1.
sparsity::Masks half(const std::vector<sparsity::Group>& groups, Mask mask, uint64_t seed);

/// The whole network, masked; `masks` has the removable groups of `analysis`.
program::Model masked(const program::Model& model, const Analysis& analysis, const sparsity::Masks& masks, Mask mask);

program::Model cut(const program::Model& model, const Analysis& analysis, const sparsity::Cut& cut);

/// Largest difference of outputs, relative to the largest output.
double difference(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b);

/// The difference of the network that is cut from the whole one, masked, on make_inputs().
double masked_error(const program::Model& small, const program::Model& model, const Analysis& analysis,
                    const sparsity::Masks& masks, Mask mask);

/// One step of gradient descent in training mode; false if a gradient or the loss after it is not finite.
bool trains(program::Model& model, const std::vector<at::Tensor>& inputs);

}  // namespace prunex::channels
