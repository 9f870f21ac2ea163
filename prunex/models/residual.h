// The blocks of residual networks, with torchvision's names.
#pragma once

#include <cstdint>
#include <string>

#include "prunex/program/builder.h"

namespace prunex::models {

struct BlockShape {
  int64_t out = 0;     ///< channels of the residual stream behind the block
  int64_t middle = 0;  ///< channels between a bottleneck's convolutions
  int64_t stride = 1;
};

/// Two 3x3 convolutions, or 1x1, 3x3 (which carries the stride), 1x1, around a shortcut; a 1x1 convolution with
/// batch norm where the shapes differ.
program::ValueId basic_block(program::Builder& net, const std::string& name, program::ValueId x, const BlockShape&);
program::ValueId bottleneck(program::Builder& net, const std::string& name, program::ValueId x, const BlockShape&);

}  // namespace prunex::models
