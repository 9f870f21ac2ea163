// Anyone's own images as safetensors files.
#pragma once

#include <string>

#include "prunex/data/dataset.h"

namespace prunex::data {

/// Both files hold `images` (uint8, N x C x H x W) and `labels` (int64, N), with images of one shape. There are as
/// many classes as the largest label of the training file says, and the test file has no others; mean and std are those
/// of the training images. A std::invalid_argument or std::runtime_error names the file that is not so.
TrainAndTest read_image_files(const std::string& train, const std::string& test);

/// One such file by itself, without mean and std: a test set for a network that brings its own.
Dataset read_image_file(const std::string& path);

}  // namespace prunex::data
