// Images and labels, in memory or streamed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace prunex::data {

/// What the loader does to training images at random, in this order; each as torchvision.transforms.v2 does it.
struct Augmentation {
  int64_t padding = 0;     ///< zeros around the image before a crop of its size at a random place; 0 = no crop
  int64_t crop_size = 0;   ///< RandomResizedCrop to a square of this side; 0 = none
  bool flip = false;       ///< mirror every other image left to right
  double color = 0;        ///< ColorJitter of brightness, contrast and saturation by so much
  int64_t operations = 0;  ///< RandAugment: so many operations per image
  int64_t magnitude = 0;   ///< of them, 0 … 30
  double erase = 0;        ///< RandomErasing: the share of images of which a part gets the mean colour

  /// Nothing but the crop of a padded image and the mirror.
  bool is_shift() const { return crop_size == 0 && color == 0 && operations == 0 && erase == 0; }
  bool operator==(const Augmentation&) const = default;
};

class ImageStream;

/// Where images come from that do not lie in memory.
struct Streamed {
  std::shared_ptr<const ImageStream> stream;
  std::shared_ptr<const std::vector<int64_t>> order;  ///< numbers of the stream; null: all, as they are
  int64_t first = 0;                                  ///< place in the order at which the set begins
  std::optional<uint64_t> augmented_by;               ///< seed: image i is what training sees at place i of epoch 0

  /// In the stream, of image i of the set.
  int64_t number_of(int64_t i) const { return order ? (*order)[static_cast<size_t>(first + i)] : first + i; }
};

inline constexpr int64_t kMostClasses = 1 << 24;

struct Dataset {
  std::string name;
  at::Tensor images;  ///< uint8, N x C x H x W, channels_last; undefined if they are `streamed`
  at::Tensor labels;  ///< int64, N, each in 0 … classes - 1
  int64_t classes = 0;
  std::vector<double> mean;  ///< per channel, of pixels scaled to 0 … 1; of the training images, also in a test set
  std::vector<double> std;
  Augmentation augmentation;
  std::vector<std::string> class_names{};  ///< by label; empty if they are not known
  Streamed streamed{};

  int64_t size() const { return labels.defined() ? labels.size(0) : 0; }
  /// Channels, height, width.
  std::vector<int64_t> image_shape() const;
  bool is_streamed() const { return streamed.stream != nullptr; }
};

/// Per channel: what a pixel from 0 to 255 is multiplied by, and what is added then.
struct ChannelScales {
  std::vector<float> scale, shift;
};
ChannelScales channel_scales(const Dataset& dataset);

struct Datasets {
  Dataset train;
  Dataset validation{};  ///< of size() 0 unless asked for
  Dataset test;
};

/// Throws std::invalid_argument that names `source` unless types, shapes and labels are as Dataset says.
void check_dataset(const Dataset& dataset, const std::string& source);

/// Throws std::invalid_argument that names `source` for labels so high that they can hardly be meant: more classes than
/// images, and than a small set may lack.
void check_class_count(int64_t classes, int64_t images, const std::string& source);

/// Sets mean and std from the images. A channel without variation gets the std of one grey level.
void set_statistics(Dataset& dataset);

/// CRC-32 of the images and labels as they lie in memory; of images that are streamed, of their names and labels in
/// their order and of the classes.
int64_t checksum(const Dataset& dataset);

/// Image i is image order[i] of the set, which is streamed.
Dataset in_order(const Dataset& dataset, const std::vector<int64_t>& order);

/// The first `n` images, sharing memory. `option` is named in the std::invalid_argument if n is not in 1 … size.
Dataset take_first(const Dataset& dataset, int64_t n, const std::string& option);

/// Everything but the last `n` images, and those; sharing memory. std::invalid_argument names `validation` if n is
/// not in 1 … size - 1.
std::pair<Dataset, Dataset> split_validation(const Dataset& dataset, int64_t n);

}  // namespace prunex::data
