// Anyone's own images as safetensors files.
#pragma once

#include <string>

#include "prunex/data/dataset.h"

namespace prunex::data {

/// Both files hold `images` (uint8, N x C x H x W) and `labels` (int64, N), with images of one shape. There are as
/// many classes as the largest label of both files says, mean and std are those of the training images.
/// A std::invalid_argument or std::runtime_error names the file that is not so.
TrainAndTest read_image_files(const std::string& train, const std::string& test);

}  // namespace prunex::data
