// torchvision's residual networks.
#pragma once

#include <array>

#include "prunex/models/models.h"

namespace prunex::models {

struct ResnetShape {
  std::array<int64_t, 4> blocks{};  ///< per stage
  bool bottleneck = true;
  int64_t base_width = 64;  ///< channels inside the first stage's bottlenecks; doubles per stage
};

/// Images of 32x32 or less meet a 3x3 convolution without stride and no max-pool instead of the 7x7 stem.
program::Model resnet(const ResnetShape& shape, const ModelOptions& options);

}  // namespace prunex::models
