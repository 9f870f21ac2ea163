#include "prunex/data/dataset.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "prunex/data/image_stream.h"

namespace prunex::data {
namespace {

Dataset range(const Dataset& dataset, int64_t begin, int64_t size) {
  Dataset result = dataset;
  if (dataset.is_streamed()) {
    result.streamed.first += begin;
  } else {
    result.images = dataset.images.narrow(0, begin, size);
  }
  result.labels = dataset.labels.narrow(0, begin, size);
  return result;
}

void require(bool condition, const std::string& source, const std::string& wanted, const at::Tensor& got) {
  if (condition) return;
  throw std::invalid_argument(fmt::format("{}: {}, got {} [{}]", source, wanted, c10::toString(got.scalar_type()),
                                          fmt::join(got.sizes().vec(), " x ")));
}

}  // namespace

std::vector<int64_t> Dataset::image_shape() const {
  if (!is_streamed()) return images.sizes().slice(1).vec();
  return {3, streamed.stream->options().size, streamed.stream->options().size};
}

Dataset in_order(const Dataset& dataset, const std::vector<int64_t>& order) {
  auto numbers = std::make_shared<std::vector<int64_t>>();
  for (const int64_t i : order) numbers->push_back(dataset.streamed.number_of(i));
  Dataset result = dataset;
  result.labels = dataset.labels.index_select(0, at::tensor(order, at::kLong));
  result.streamed.order = std::move(numbers);
  result.streamed.first = 0;
  return result;
}

int64_t checksum(const Dataset& dataset) {
  uLong sum = 0;
  const auto add = [&sum](const void* bytes, size_t size) {
    sum = crc32_z(sum, static_cast<const Bytef*>(bytes), size);
  };
  const auto add_tensor = [&add](const at::Tensor& tensor) {
    const at::Tensor bytes = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
    add(bytes.const_data_ptr(), bytes.nbytes());
  };
  if (dataset.is_streamed()) {
    for (const std::string& name : dataset.class_names) add(name.c_str(), name.size() + 1);
    for (int64_t i = 0; i < dataset.size(); ++i) {
      const std::string name = dataset.streamed.stream->images().short_name(dataset.streamed.number_of(i));
      add(name.c_str(), name.size() + 1);
    }
  } else {
    add_tensor(dataset.images);
  }
  add_tensor(dataset.labels);
  return static_cast<int64_t>(sum);
}

ChannelScales channel_scales(const Dataset& dataset) {
  ChannelScales scales;
  for (size_t channel = 0; channel < dataset.std.size(); ++channel) {
    scales.scale.push_back(static_cast<float>(1.0 / (255.0 * dataset.std[channel])));
    scales.shift.push_back(static_cast<float>(-dataset.mean[channel] / dataset.std[channel]));
  }
  return scales;
}

void check_dataset(const Dataset& dataset, const std::string& source) {
  const at::Tensor& images = dataset.images;
  const at::Tensor& labels = dataset.labels;
  require(images.scalar_type() == at::kByte && images.dim() == 4 && images.numel() > 0, source,
          "images must be uint8 [N x C x H x W] and not empty", images);
  require(labels.scalar_type() == at::kLong && labels.dim() == 1 && labels.size(0) == images.size(0), source,
          fmt::format("labels must be int64 [{}], one per image", images.size(0)), labels);
  int64_t low = labels.min().item<int64_t>();
  int64_t high = labels.max().item<int64_t>();
  if (low >= 0 && high < dataset.classes) return;
  throw std::invalid_argument(
      fmt::format("{}: labels must be in 0 … {}, got {} … {}", source, dataset.classes - 1, low, high));
}

void check_class_count(int64_t classes, int64_t images, const std::string& source) {
  constexpr int64_t kFew = 1000;
  if (classes <= std::max(kFew, images)) return;
  throw std::invalid_argument(
      fmt::format("{}: labels go up to {}, more classes than the {} images", source, classes - 1, images));
}

// From a histogram: exact, and without a floating-point copy of all images.
void set_statistics(Dataset& dataset) {
  dataset.mean.clear();
  dataset.std.clear();
  at::Tensor level = at::arange(256, at::kDouble) / 255.0;
  for (int64_t channel = 0; channel < dataset.images.size(1); ++channel) {
    at::Tensor share = at::bincount(dataset.images.select(1, channel).reshape(-1), {}, 256).to(at::kDouble);
    share /= share.sum();
    at::Tensor mean = (share * level).sum();
    at::Tensor variance = (share * (level - mean).square()).sum();
    dataset.mean.push_back(mean.item<double>());
    dataset.std.push_back(std::max(std::sqrt(variance.item<double>()), 1.0 / 255.0));
  }
}

Dataset take_first(const Dataset& dataset, int64_t n, const std::string& option) {
  if (n < 1 || n > dataset.size()) {
    throw std::invalid_argument(
        fmt::format("{}: got {}, wanted 1 … {}, the images of {}", option, n, dataset.size(), dataset.name));
  }
  return range(dataset, 0, n);
}

std::pair<Dataset, Dataset> split_validation(const Dataset& dataset, int64_t n) {
  if (n < 1 || n >= dataset.size()) {
    throw std::invalid_argument(fmt::format("`validation`: got {}, wanted 1 … {} of the {} training images of {}", n,
                                            dataset.size() - 1, dataset.size(), dataset.name));
  }
  return {range(dataset, 0, dataset.size() - n), range(dataset, dataset.size() - n, n)};
}

}  // namespace prunex::data
