// VGG networks with batch norm: torchvision's, and Torch-Pruning's for CIFAR.
#pragma once

#include <vector>

#include "prunex/models/models.h"

namespace prunex::models {

/// `stages`: the output channels of the 3x3 convolutions between the max-pools.
program::Model vgg(const std::vector<std::vector<int64_t>>& stages, const ModelOptions& options);

/// For images of 32 or 64 pixels a side: the last two stages share their resolution at 32, and one linear layer follows
/// the average of what is left.
program::Model cifar_vgg(const std::vector<std::vector<int64_t>>& stages, const ModelOptions& options);

}  // namespace prunex::models
