// Augmentation in words, its random numbers, and what it does to one image.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "prunex/data/dataset.h"
#include "prunex/data/operations.h"
#include "prunex/data/random.h"

namespace prunex::data {

/// How the words are written: "none, or crop:PIXELS, …".
extern const char* const kAugmentationWords;

/// "none", or words with commas between in the order in which they are done: "resized-crop:224,flip,color:0.4".
/// std::invalid_argument "got …, wanted …" names the word that is none, is out of range or out of order.
Augmentation parse_augmentation(const std::string& words);
std::string to_string(const Augmentation& augmentation);

/// Throws std::invalid_argument that names `augment` if the set's images cannot have it.
void check_augmentation(const Augmentation& augmentation, const Dataset& dataset);

/// How an image is augmented. `rest` draws what is not drawn yet: the box of a resized crop, then colours,
/// RandAugment's operations, what is erased.
struct Draws {
  int64_t down = 0, right = 0;  ///< where in the padded image the crop begins, from where the image does
  bool flip = false;
  Random rest{{}};
};

/// Of the image at `position` of an epoch's order.
Draws augmentation_draws(const Augmentation& augmentation, uint64_t seed, int64_t epoch, int64_t position);

/// RandomResizedCrop's: 8 to 100 % of the area, sides of 3 : 4 to 4 : 3; in the middle if ten tries do not fit.
Box resized_crop_box(int64_t height, int64_t width, Random& random);

/// What comes behind crop and mirror. `mean`: a level per channel, which erased pixels get.
void augment_colours(const Picture& picture, const Augmentation& augmentation, const std::vector<uint8_t>& mean,
                     Random& random);

/// The levels next to the set's mean.
std::vector<uint8_t> mean_levels(const Dataset& dataset);

inline constexpr int64_t kMostMagnitude = 30;

/// One of RandAugment's operations (arXiv 1909.13719), by torchvision's name.
struct RandOperation {
  const char* name;
  bool is_signed;                                                        ///< half of the images get -strength
  double (*strength)(int64_t magnitude, int64_t height, int64_t width);  ///< what torchvision calls the magnitude
  void (*apply)(const Picture& picture, double strength);
};
std::span<const RandOperation> rand_operations();

}  // namespace prunex::data
