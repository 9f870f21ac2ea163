// The built-in networks, by name and as functions.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "prunex/program/builder.h"

namespace prunex::models {

enum class Norm {
  kBatch,
  kGroup,  ///< norm_groups() of the channels; keeps no statistics
};

struct ModelOptions {
  int64_t classes = 10;
  int64_t channels = 3;      ///< of the input images
  int64_t height = 32;       ///< of the input images, pixels
  int64_t width = 32;        ///< of the input images, pixels
  double multiplier = 1.0;   ///< of the CIFAR ResNets' channels
  Norm norm = Norm::kBatch;  ///< behind every convolution
  uint64_t seed = 0;         ///< of the initial weights
};

/// One float NCHW input, logits out. Names: model_names(); anything else, or options that do not fit the network,
/// throw std::invalid_argument.
program::Model make_model(const std::string& name, const ModelOptions& options);

/// 32 (Wu & He, arXiv 1803.08494), but no group has fewer than 4 channels (arXiv 2206.00364); of numbers that do not
/// divide the channels the next lower one that does.
int64_t norm_groups(int64_t channels);

std::vector<std::string> model_names();
/// Made for the 32 x 32 images of CIFAR; the others are torchvision's ImageNet networks.
bool is_for_cifar(const std::string& name);

// By themselves.

/// The norm that options ask for.
program::ValueId norm(program::Builder& net, const std::string& name, program::ValueId x, Norm kind);

/// He et al.'s residual networks for 32x32 images: three stages of 16, 32 and 64 channels with `blocks` basic blocks
/// each: 1, 3, 9 for resnet8, 20, 56. Where the width changes, the shortcut is a 1x1 convolution with a norm. Names
/// follow torchvision's ResNet.
program::Model cifar_resnet(int64_t blocks, const ModelOptions& options);

struct ResnetShape {
  std::array<int64_t, 4> blocks{};  ///< per stage
  bool bottleneck = true;
  int64_t base_width = 64;  ///< channels inside the first stage's bottlenecks; doubles per stage
};

/// torchvision's residual networks. Images of 32x32 or less meet a 3x3 convolution without stride and no max-pool
/// instead of the 7x7 stem.
program::Model resnet(const ResnetShape& shape, const ModelOptions& options);

/// torchvision's VGG networks with norms. `stages`: the output channels of the 3x3 convolutions between the
/// max-pools.
program::Model vgg(const std::vector<std::vector<int64_t>>& stages, const ModelOptions& options);

/// Torch-Pruning's VGG networks for images of 32 or 64 pixels a side: the last two stages share their resolution at 32,
/// and one linear layer follows the average of what is left.
program::Model cifar_vgg(const std::vector<std::vector<int64_t>>& stages, const ModelOptions& options);

}  // namespace prunex::models
