// Augmentation in words, its draws, and what needs no PyTorch to be checked (tests/pytorch/augment.py has the rest).
#include "prunex/data/augment.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <stdexcept>

#include "prunex/data/load.h"
#include "prunex/data/loader.h"

namespace prunex::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(AugmentationWords, AreReadAndWritten) {
  for (const char* words : {"none", "crop:4,flip", "flip", "crop:2", "resized-crop:224", "color:0.4",
                            "resized-crop:224,flip,color:0.4,randaugment:2:9,erase:0.25"}) {
    EXPECT_EQ(to_string(parse_augmentation(words)), words);
  }
  const Augmentation all = parse_augmentation("resized-crop:224,flip,color:0.4,randaugment:2:9,erase:0.25");
  EXPECT_EQ(all, (Augmentation{
                     .crop_size = 224, .flip = true, .color = 0.4, .operations = 2, .magnitude = 9, .erase = 0.25}));
}

TEST(AugmentationWords, ThatAreWrongAreNamed) {
  const auto refused = [](const std::string& words, const std::string& reason) {
    EXPECT_THAT([&] { parse_augmentation(words); }, ThrowsMessage<std::invalid_argument>(HasSubstr(reason))) << words;
  };
  for (const char* words : {"", "flop", "crop:4,", "CROP:4", "none,flip"})
    refused(words, "wanted none, or of crop:PIXELS");
  refused("crop", "got 'crop', wanted crop:PIXELS");
  refused("crop:4:5", "got 'crop:4:5', wanted crop:PIXELS");
  refused("crop:x", "got 'crop:x', wanted crop:PIXELS");
  refused("crop:1.5", "got 'crop:1.5', wanted crop:PIXELS");
  refused("crop:0", "got 'crop:0', wanted 1 or more");
  refused("flip:1", "got 'flip:1', wanted flip");
  refused("color:nan", "got 'color:nan'");
  refused("color:-1", "wanted a share");
  refused("erase:1.5", "wanted a share");
  refused("randaugment:2", "wanted randaugment:OPERATIONS:MAGNITUDE");
  refused("randaugment:2:31", "got 'randaugment:2:31', wanted at most 30");
  refused("flip,crop:4", "got 'crop:4' behind 'flip'");
  refused("flip,flip", "got 'flip' behind 'flip'");
  refused("crop:4,resized-crop:32", "wanted crop or resized-crop, not both");
}

TEST(Augmentation, ThatASetCannotHaveIsRefused) {
  const auto refused = [](const std::string& words, const std::string& reason) {
    EXPECT_THAT([&] { load_datasets({.samples = 20, .augment = parse_augmentation(words)}); },
                ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("`augment`: got " + words), HasSubstr(reason))));
  };
  refused("resized-crop:224", "the images of synthetic are 3 x 32 x 32: wanted resized-crop:32");
  refused("crop:32", "wanted a crop of fewer pixels");
  Dataset four{.name = "four", .images = at::zeros({1, 4, 8, 9}, at::kByte)};
  EXPECT_NO_THROW(check_augmentation(parse_augmentation("crop:4,flip,erase:0.1"), four));
  EXPECT_THAT([&] { check_augmentation(parse_augmentation("color:0.4"), four); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("wanted no color and randaugment")));
  EXPECT_THAT([&] { check_augmentation(parse_augmentation("resized-crop:8"), four); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("which makes squares")));
}

TEST(Augmentation, ReplacesTheSetsOwn) {
  EXPECT_EQ(to_string(load_datasets({.samples = 20}).train.augmentation), "crop:2,flip");
  EXPECT_EQ(to_string(load_datasets({.samples = 20, .augment = Augmentation{}}).train.augmentation), "none");
}

uLong checksum(const Batch& batch) {
  const at::Tensor pixels = batch.images.permute({0, 2, 3, 1}).contiguous();
  return crc32_z(0, static_cast<const Bytef*>(pixels.const_data_ptr()), pixels.nbytes());
}

// What earlier versions made: a resumed run must go on with these bits.
TEST(Augmentation, OfCropAndFlipHasItsOldBits) {
  Loader loader(make_synthetic(200, 0).train, {.batch_size = 16, .rank = 1, .ranks = 2, .seed = 5});
  EXPECT_EQ(checksum(loader.batch(0, 0)), 3795617562U);
  EXPECT_EQ(checksum(loader.batch(3, 2)), 677092742U);
}

TEST(Augmentation, IsAFunctionOfSeedEpochAndPosition) {
  const auto loader = [](int64_t rank, int64_t ranks, uint64_t seed) {
    Dataset set = make_synthetic(64, 0).train;
    set.augmentation = parse_augmentation("resized-crop:32,flip,color:0.4,randaugment:2:9,erase:0.5");
    return Loader(set, {.batch_size = 32 / ranks, .rank = rank, .ranks = ranks, .seed = seed});
  };
  const at::Tensor whole = loader(0, 1, 1).batch(2, 1).images;
  EXPECT_TRUE(whole.equal(loader(0, 1, 1).batch(2, 1).images));
  EXPECT_TRUE(whole.equal(at::cat({loader(0, 2, 1).batch(2, 1).images, loader(1, 2, 1).batch(2, 1).images})));
  EXPECT_FALSE(whole.equal(loader(0, 1, 2).batch(2, 1).images));
  EXPECT_FALSE(whole.equal(loader(0, 1, 1).batch(3, 1).images));
}

TEST(Augmentation, HasTheSharesThatItsWordsSay) {
  Random random({1});
  int erased = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<uint8_t> pixels(16 * 16, 200);
    augment_colours({pixels.data(), 16, 16, 1}, {.erase = 0.25}, {7}, random);
    erased += std::count(pixels.begin(), pixels.end(), 7) > 0;
  }
  EXPECT_NEAR(erased, 500, 60);  // three standard deviations
}

TEST(ResizedCrop, LiesInTheImageWithTheSharesOfItsArea) {
  Random random({3});
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>{375, 500}, {1, 1}, {2000, 3}, {3, 2000}}) {
    for (int i = 0; i < 300; ++i) {
      const Box box = resized_crop_box(height, width, random);
      ASSERT_TRUE(box.top >= 0 && box.left >= 0 && box.height > 0 && box.width > 0);
      ASSERT_TRUE(box.top + box.height <= height && box.left + box.width <= width);
    }
  }
  const Box tall = resized_crop_box(2000, 3, random);
  EXPECT_EQ(tall.height, 4) << "3 : 4 in the middle";
  EXPECT_EQ(tall.top, 998);
}

}  // namespace
}  // namespace prunex::data
