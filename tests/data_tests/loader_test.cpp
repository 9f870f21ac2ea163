// Sharding, shuffling and augmentation; the reference for augmentation is written with ATen operations.
#include "prunex/data/loader.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <set>
#include <stdexcept>

#include "prunex/data/workers.h"
#include "tests/texts.h"

namespace prunex::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int64_t kSide = 6;

// Every image differs, labels are the positions; mean and std differ per channel.
Dataset numbered_images(int64_t size, Augmentation augmentation = {}) {
  auto pixels = at::arange(size * 3 * kSide * kSide, at::kLong).mul(37).remainder(251).add(1).to(at::kByte);
  return {.name = "numbered",
          .images = pixels.reshape({size, 3, kSide, kSide}),
          .labels = at::arange(size, at::kLong),
          .classes = size,
          .mean = {0.5, 0.25, 0.125},
          .std = {0.25, 0.5, 0.75},
          .augmentation = augmentation};
}

// Closed form, per channel: (pixel / 255 - mean) / std.
at::Tensor normalised(const at::Tensor& images, const Dataset& dataset) {
  at::Tensor mean = at::tensor(at::ArrayRef<double>(dataset.mean)).view({3, 1, 1});
  at::Tensor std = at::tensor(at::ArrayRef<double>(dataset.std)).view({3, 1, 1});
  return ((images.to(at::kDouble) / 255 - mean) / std).to(at::kFloat);
}

std::vector<int64_t> values(const at::Tensor& labels) {
  return {labels.const_data_ptr<int64_t>(), labels.const_data_ptr<int64_t>() + labels.numel()};
}

std::vector<int64_t> epoch_of(Loader& loader, int64_t epoch) {
  std::vector<int64_t> seen;
  for (int64_t step = 0; step < loader.steps_per_epoch(); ++step) {
    for (int64_t label : values(loader.batch(epoch, step).labels)) seen.push_back(label);
  }
  return seen;
}

TEST(Loader, NormalisesIntoChannelsLast) {
  Dataset dataset = numbered_images(20);
  Batch batch = Loader(dataset, {.batch_size = 8}).batch(0, 1);
  EXPECT_EQ(batch.images.sizes(), (std::vector<int64_t>{8, 3, kSide, kSide}));
  EXPECT_TRUE(batch.images.is_contiguous(at::MemoryFormat::ChannelsLast));
  at::Tensor expected = normalised(dataset.images.index_select(0, batch.labels), dataset);
  EXPECT_TRUE(at::allclose(batch.images, expected, 1e-5, 1e-5));
}

TEST(Loader, TakesGreyAndNonSquareImages) {
  Dataset dataset = numbered_images(4, {.padding = 2, .flip = true});
  dataset.images = dataset.images.reshape({4, 1, 4, 27});
  dataset.mean = {0.0};
  dataset.std = {1.0};
  EXPECT_EQ(Loader(dataset, {.batch_size = 4}).batch(0, 0).images.sizes(), (std::vector<int64_t>{4, 1, 4, 27}));
}

TEST(Loader, ShardsAreDisjointAndTheRemainderIsLeftOut) {
  std::multiset<int64_t> seen;
  for (int64_t rank = 0; rank < 3; ++rank) {
    Loader loader(numbered_images(100), {.batch_size = 8, .rank = rank, .ranks = 3});
    EXPECT_EQ(loader.steps_per_epoch(), 4);  // floor(100 / 24)
    for (int64_t label : epoch_of(loader, 2)) seen.insert(label);
  }
  EXPECT_EQ(seen.size(), 96u);
  EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), 96u);
}

TEST(Loader, TheRemainderRotates) {
  Loader loader(numbered_images(100), {.batch_size = 24});
  std::set<int64_t> seen;
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    for (int64_t label : epoch_of(loader, epoch)) seen.insert(label);
  }
  EXPECT_EQ(seen.size(), 100u);
}

TEST(Loader, ShufflesAnewInEveryEpochAndBySeed) {
  Loader loader(numbered_images(64), {.batch_size = 64, .seed = 5});
  std::vector<int64_t> first = epoch_of(loader, 0);
  std::vector<int64_t> identity(64);
  std::iota(identity.begin(), identity.end(), 0);
  EXPECT_TRUE(std::is_permutation(first.begin(), first.end(), identity.begin()));
  EXPECT_NE(first, identity);
  EXPECT_NE(first, epoch_of(loader, 1));
  Loader other(numbered_images(64), {.batch_size = 64, .seed = 6});
  EXPECT_NE(first, epoch_of(other, 0));
}

// Each of 10 images should come first in a tenth of the epochs: 3000 draws, standard deviation 16.
TEST(Loader, EveryImageIsEquallyLikelyToComeFirst) {
  Loader loader(numbered_images(10), {.batch_size = 1});
  std::vector<int64_t> count(10);
  for (int64_t epoch = 0; epoch < 3000; ++epoch) ++count[loader.batch(epoch, 0).labels.item<int64_t>()];
  for (int64_t n : count) EXPECT_NEAR(n, 300, 80);
}

TEST(Loader, ABatchDependsOnEpochAndStepOnly) {
  Augmentation augmentation{.padding = 2, .flip = true};
  Loader straight(numbered_images(40, augmentation), {.batch_size = 8});
  Batch expected;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    for (int64_t step = 0; step < 4; ++step) expected = straight.batch(epoch, step);
  }
  Batch resumed = Loader(numbered_images(40, augmentation), {.batch_size = 8}).batch(2, 3);
  EXPECT_TRUE(at::equal(resumed.images, expected.images));
  EXPECT_TRUE(at::equal(resumed.labels, expected.labels));
}

TEST(Loader, TwoRanksSeeWhatOneWithTwiceTheBatchSees) {
  Dataset dataset = numbered_images(50, {.padding = 2, .flip = true});
  Batch whole = Loader(dataset, {.batch_size = 16, .seed = 3}).batch(1, 2);
  std::vector<at::Tensor> parts;
  for (int64_t rank = 0; rank < 2; ++rank) {
    parts.push_back(Loader(dataset, {.batch_size = 8, .rank = rank, .ranks = 2, .seed = 3}).batch(1, 2).images);
  }
  EXPECT_TRUE(at::equal(at::cat(parts), whole.images));
}

// Reference: all crops of the padded image, straight and mirrored. Each batch image must be one of them.
TEST(Loader, AugmentationIsACropOfThePaddedImagePossiblyMirrored) {
  Dataset dataset = numbered_images(200, {.padding = 2, .flip = true});
  Batch batch = Loader(dataset, {.batch_size = 200}).batch(0, 0);
  std::set<int64_t> seen;
  for (int64_t i = 0; i < 200; ++i) {
    at::Tensor padded = at::constant_pad_nd(dataset.images[values(batch.labels)[i]], {2, 2, 2, 2}, 0);
    std::vector<int64_t> matches;
    for (int64_t variant = 0; variant < 50; ++variant) {
      at::Tensor crop = padded.slice(1, variant / 2 / 5, variant / 2 / 5 + kSide);
      crop = crop.slice(2, variant / 2 % 5, variant / 2 % 5 + kSide);
      if (variant % 2 == 1) crop = crop.flip(2);
      if (at::allclose(batch.images[i], normalised(crop, dataset), 1e-5, 1e-5)) matches.push_back(variant);
    }
    ASSERT_EQ(matches.size(), 1u) << i;
    seen.insert(matches[0]);
  }
  EXPECT_GT(seen.size(), 45u);  // 200 draws of 50 variants miss 0.9 of them on average
}

TEST(Loader, APaddingBeyondTheImageGivesBlack) {
  Dataset dataset = numbered_images(64, {.padding = 100});
  const at::Tensor images = Loader(dataset, {.batch_size = 64}).batch(0, 0).images;
  const at::Tensor black = normalised(at::zeros_like(dataset.images), dataset);
  const at::Tensor is_black = at::isclose(images, black, 1e-5, 1e-5).flatten(1).all(1);
  EXPECT_GT(is_black.sum().item<int64_t>(), 48);  // few crops meet the image, a hundredth of what is cut from
}

TEST(Loader, DrawsNothingFromTheProcessWideGenerator) {
  at::manual_seed(1);
  at::Tensor expected = at::rand({4});
  at::manual_seed(1);
  Loader(numbered_images(20, {.padding = 2, .flip = true}), {.batch_size = 8}).batch(0, 0);
  EXPECT_TRUE(at::equal(at::rand({4}), expected));
}

TEST(Loader, RefusesASetSmallerThanOneStep) {
  EXPECT_THAT([] { Loader(numbered_images(31), {.batch_size = 8, .ranks = 4}); },
              ThrowsMessage<std::invalid_argument>(
                  AllOf(HasSubstr("`batch_size`: got 8"), HasSubstr("takes 4 x 8 images"), HasSubstr("has 31"))));
  EXPECT_NO_THROW(Loader(numbered_images(32), {.batch_size = 8, .ranks = 4}));
}

TEST(Loader, RefusesBatchSizesThatAreNone) {
  for (int64_t size : {int64_t{0}, int64_t{-8}, INT64_MAX}) {
    EXPECT_THAT([&] { Loader(numbered_images(31), {.batch_size = size, .ranks = 4}); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("`batch_size`")));
  }
}

TEST(Loader, RefusesAStepOutsideTheEpoch) {
  Loader loader(numbered_images(31), {.batch_size = 8});
  EXPECT_THROW(loader.batch(0, 3), std::exception);
  EXPECT_THROW(loader.batch(0, -1), std::exception);
  EXPECT_THROW(loader.batch(-1, 0), std::exception);
}

TEST(EvaluationBatch, IsInOrderAndNotAugmented) {
  Dataset dataset = numbered_images(20, {.padding = 2, .flip = true});
  Batch batch = evaluation_batch(dataset, 5, 12);
  EXPECT_TRUE(at::equal(batch.labels, at::arange(5, 12, at::kLong)));
  EXPECT_TRUE(batch.images.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(at::allclose(batch.images, normalised(dataset.images.slice(0, 5, 12), dataset), 1e-5, 1e-5));
}

TEST(EvaluationBatch, RefusesARangeOutsideTheSet) {
  EXPECT_THROW(evaluation_batch(numbered_images(20), 15, 21), std::exception);
  EXPECT_THROW(evaluation_batch(numbered_images(20), 5, 5), std::exception);
}

/// Images of an epoch that three ranks begin and, from a step on, the two that are left divide.
TEST(Loader, DividesWhatIsLeftOfAnEpochAmongFewerRanks) {
  const Dataset dataset = numbered_images(100);
  std::multiset<int64_t> seen;
  const auto take = [&](Loader& loader, Cursor at) {
    for (const int64_t label : values(loader.batch(at.epoch, at.step).labels)) seen.insert(label);
  };
  for (int64_t rank = 0; rank < 3; ++rank) {
    Loader loader(dataset, {.batch_size = 4, .rank = rank, .ranks = 3, .seed = 5});
    Cursor at{1, 0};
    for (; at.step < 3; at = loader.after(at)) take(loader, at);
    if (rank == 1) continue;  // it is lost
    at = loader.divide(rank / 2, 2, at);
    EXPECT_EQ(at, (Cursor{1, 3}));
    EXPECT_EQ(loader.steps_in(1), 3 + (100 - 36) / 8);
    for (; at.epoch == 1; at = loader.after(at)) take(loader, at);
    EXPECT_EQ(at, (Cursor{2, 0}));
    EXPECT_EQ(loader.steps_in(2), 100 / 8);
    Loader fresh(dataset, {.batch_size = 4, .rank = rank / 2, .ranks = 2, .seed = 5});
    EXPECT_EQ(values(loader.batch(2, 7).labels), values(fresh.batch(2, 7).labels));
    Loader resumed(dataset, {.batch_size = 4, .rank = rank / 2, .ranks = 2, .seed = 5});
    EXPECT_EQ(resumed.go_on({1, 4}, loader.position({1, 4})), (Cursor{1, 4}));
    EXPECT_EQ(values(resumed.batch(1, 6).labels), values(loader.batch(1, 6).labels));
    EXPECT_EQ(resumed.steps_in(1), loader.steps_in(1));
    at = loader.divide(0, 1, {2, 5});
    EXPECT_EQ(loader.divide(0, 1, {2, loader.steps_in(2)}), (Cursor{3, 0})) << "nothing is left of epoch 2";
    for (const int64_t ranks : {25, 8, 2}) loader.divide(0, ranks, {3, 0});
    EXPECT_EQ(loader.position({3, 0}), 0) << "of one place as often as ranks change there";
    EXPECT_EQ(loader.steps_in(3), 100 / 8);
  }
  EXPECT_EQ(seen.size(), 100U);
  EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), 100U) << "none twice";
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they end where memory does

/// Bytes of addresses that this process has.
rlim_t addresses() {
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<rlim_t>(::sysconf(_SC_PAGE_SIZE));
}

// There is room for the stacks of some of them.
TEST(Workers, OfWhichOneCannotBeStartedEnd) {
  const auto fail = [] {
    rlimit limit = {};
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = addresses() + (rlim_t{100} << 20);
    setrlimit(RLIMIT_AS, &limit);
    std::fputs(tests::message([] { const Workers workers(1000); }).c_str(), stderr);
    std::_Exit(0);
  };
  EXPECT_EXIT(fail(), testing::ExitedWithCode(0), "Resource temporarily unavailable");
}

#endif

}  // namespace
}  // namespace prunex::data
