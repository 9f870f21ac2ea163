// He et al.'s residual networks for 32x32 images: three stages of 16, 32 and 64 channels.
#pragma once

#include "prunex/models/models.h"

namespace prunex::models {

/// `blocks` basic blocks per stage: 1, 3, 9 for resnet8, 20, 56. Where the width changes, the shortcut is a 1x1
/// convolution with batch norm. Names follow torchvision's ResNet.
program::Model cifar_resnet(int64_t blocks, const ModelOptions& options);

}  // namespace prunex::models
