// What weights are in the layers that use them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "prunex/program/program.h"
#include "prunex/sparsity/group.h"

namespace prunex::channels {

enum class WeightKind {
  kConvolution,
  kDepthwise,  ///< a convolution of as many groups as filters, more than one
  kLinear,
  kRecurrent,  ///< of LSTM, GRU and plain recurrent layers
  kEmbedding,
  kFactor,     ///< of a product of tensors: matmul and the like
  kBatchNorm,  ///< the scale of a norm: gamma
  kLayerNorm,
  kOtherNorm,  ///< of instances or groups, and the root mean square's
  kBias,       ///< of any layer or norm
  kOther,
};

struct WeightRole {
  WeightKind kind = WeightKind::kOther;
  int64_t out_axis = 0;                   ///< the axis of the layer's outputs; -1: one axis is both, as in norms
  int64_t groups = 1;                     ///< of a convolution
  WeightKind layer = WeightKind::kOther;  ///< of a bias: what its layer's weight is
  uint32_t inputs = 0;                    ///< bit i: a layer reads its input's channels along axis i

  bool reads(int64_t axis) const { return (inputs >> axis & 1) != 0; }
  /// Channels that the layer reads where its weight has so many positions along an axis of inputs: those of a grouped
  /// convolution read one of each group.
  int64_t channels_read(int64_t positions) const { return positions * (out_axis == 0 ? groups : 1); }
};
/// By the name that owns the storage; weights that no operation knows are kOther. A weight that plays several parts
/// gets the first one's role.
using WeightRoles = std::map<std::string, WeightRole>;
WeightRoles weight_roles(const program::Graph& graph);

/// A word for messages and reports: "convolution", "linear", "batch norm", …
const char* name_of(WeightKind kind);

/// Whether it is the matrix or kernel of a layer, of whatever kind.
bool is_layer(WeightKind kind);

/// "layer1.0.conv1" of "layer1.0.conv1.weight"; the whole name of a bare parameter.
std::string layer_of(const std::string& weight);

/// Whether the slice lies on the outputs of a layer.
bool makes_units(const WeightRole& role, const sparsity::Slice& slice);

}  // namespace prunex::channels
