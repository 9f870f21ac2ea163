#include "prunex/data/load.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "prunex/io/safetensors.h"

namespace prunex::data {
namespace {

/// What trains, but on something else than was meant.
void check_channels(const Dataset& dataset, const std::string& path) {
  constexpr int64_t kMostColours = 4;
  const auto& images = dataset.images;
  if (images.size(1) > kMostColours && images.size(2) > kMostColours && images.size(3) <= kMostColours) {
    throw std::invalid_argument(
        fmt::format("{}: images are [{}], wanted N x channels x height x width: channels come first", path,
                    fmt::join(images.sizes(), " x ")));
  }
}

std::string image_shape(const Dataset& dataset) {
  return fmt::format("{}", fmt::join(dataset.images.sizes().slice(1).vec(), " x "));
}

}  // namespace

// Labels are checked against the classes of this file alone, so that only negative ones can be wrong.
Dataset read_image_file(const std::string& path) {
  io::SafeTensors file = io::read_safetensors(path);
  Dataset dataset{.name = std::filesystem::path(path).stem().string(),
                  .images = io::tensor_of(file, "images", path),
                  .labels = io::tensor_of(file, "labels", path),
                  .classes = 0,
                  .mean = {},
                  .std = {},
                  .augmentation = {}};
  const at::Tensor& labels = dataset.labels;
  if (labels.numel() > 0 && labels.scalar_type() == at::kLong) {  // else check_dataset() says what is wrong
    dataset.classes = 1 + std::min(labels.max().item<int64_t>(), kMostClasses - 1);
  }
  check_dataset(dataset, path);
  check_channels(dataset, path);
  dataset.images = dataset.images.contiguous(at::MemoryFormat::ChannelsLast);
  return dataset;
}

Datasets read_image_files(const std::string& train, const std::string& test, bool is_share) {
  Datasets result{.train = read_image_file(train), .test = read_image_file(test)};
  if (image_shape(result.train) != image_shape(result.test)) {
    throw std::invalid_argument(fmt::format("{}: images of {}, those of {} have {}", test, image_shape(result.test),
                                            train, image_shape(result.train)));
  }
  set_statistics(result.train);
  result.test.mean = result.train.mean;
  result.test.std = result.train.std;
  if (is_share) return result;
  check_class_count(result.train.classes, result.train.size(), train);
  if (result.test.classes > result.train.classes) {
    throw std::invalid_argument(fmt::format("{}: labels go up to {}, those of {} to {}: wanted no others to test on",
                                            test, result.test.classes - 1, train, result.train.classes - 1));
  }
  result.test.classes = result.train.classes;
  return result;
}

}  // namespace prunex::data
