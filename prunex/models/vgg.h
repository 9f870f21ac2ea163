// torchvision's VGG networks with batch norm.
#pragma once

#include <vector>

#include "prunex/models/models.h"

namespace prunex::models {

/// `stages`: the output channels of the 3x3 convolutions between the max-pools.
program::Model vgg(const std::vector<std::vector<int64_t>>& stages, const ModelOptions& options);

}  // namespace prunex::models
