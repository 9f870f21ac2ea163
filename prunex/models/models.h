// The built-in networks by name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "prunex/program/program.h"

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

}  // namespace prunex::models
