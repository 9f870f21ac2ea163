// How images are divided among nodes: the rules counted out by hand, the distribution by its moments.
#include "prunex/data/partition.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "prunex/data/loader.h"

namespace prunex::data {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

using Kind = Partition::Kind;

/// Image i has label i mod `classes`.
Dataset labelled(int64_t size, int64_t classes) {
  return {.name = "labelled",
          .images = at::zeros({size, 1, 1, 1}, at::kByte),
          .labels = at::arange(size, at::kLong).remainder(classes),
          .classes = classes,
          .mean = {0},
          .std = {1}};
}

std::vector<std::vector<int64_t>> counts_of(const Dataset& dataset, const Partition& partition, int64_t nodes) {
  std::vector<std::vector<int64_t>> counts;
  for (const auto& images : divide(dataset, partition, nodes, 1)) counts.push_back(class_counts(dataset, images));
  return counts;
}

TEST(PartitionOfImages, GivesEveryImageToOneNode) {
  const Dataset dataset = labelled(203, 7);
  for (const Partition& partition : {Partition{Kind::kDirichlet, 0.3, 1}, Partition{Kind::kClasses, 1, 3}}) {
    std::vector<int64_t> all;
    for (const auto& images : divide(dataset, partition, 4, 1)) {
      EXPECT_TRUE(std::is_sorted(images.begin(), images.end()));
      all.insert(all.end(), images.begin(), images.end());
    }
    std::sort(all.begin(), all.end());
    std::vector<int64_t> expected(203);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(all, expected) << to_string(partition);
  }
}

TEST(PartitionOfImages, FollowsFromTheSeed) {
  const Dataset dataset = labelled(200, 5);
  for (const Partition& partition : {Partition{Kind::kDirichlet, 1, 1}, Partition{Kind::kClasses, 1, 5}}) {
    EXPECT_EQ(divide(dataset, partition, 3, 4), divide(dataset, partition, 3, 4)) << to_string(partition);
    EXPECT_NE(divide(dataset, partition, 3, 4), divide(dataset, partition, 3, 5)) << to_string(partition);
  }
}

TEST(PartitionByClasses, IsBlocksOfThemWhereTheyDivideEvenly) {
  const Dataset dataset = labelled(40, 4);
  EXPECT_THAT(counts_of(dataset, {Kind::kClasses, 1, 2}, 2),
              ElementsAre(ElementsAre(10, 10, 0, 0), ElementsAre(0, 0, 10, 10)));
}

// Blocks go on from the first class: nodes 0 and 2 share classes 0 and 1.
TEST(PartitionByClasses, SharesTheImagesOfAClassThatSeveralNodesHave) {
  const Dataset dataset = labelled(70, 7);
  EXPECT_THAT(counts_of(dataset, {Kind::kClasses, 1, 3}, 3),
              ElementsAre(ElementsAre(5, 5, 10, 0, 0, 0, 0), ElementsAre(0, 0, 0, 10, 10, 10, 0),
                          ElementsAre(5, 5, 0, 0, 0, 0, 10)));
}

TEST(PartitionByClasses, WithAllClassesIsEven) {
  EXPECT_THAT(counts_of(labelled(90, 3), {Kind::kClasses, 1, 3}, 3), Each(ElementsAre(10, 10, 10)));
}

TEST(PartitionByClasses, RefusesClassesThatNobodyWouldHaveOrThatDoNotExist) {
  const auto expect_refused = [](int64_t classes) {
    EXPECT_THAT(
        [&] {
          divide(labelled(40, 10), {Kind::kClasses, 1, classes}, 4, 1);
        },
        ThrowsMessage<std::invalid_argument>(HasSubstr("wanted classes:3 to classes:10: 4 nodes share 10")));
  };
  expect_refused(2);
  expect_refused(11);
}

// A symmetric Dirichlet distribution over M nodes: mean 1/M, variance (M - 1) / (M^2 (M A + 1)).
TEST(PartitionByDirichlet, HasTheMomentsOfItsDistribution) {
  constexpr int64_t kNodes = 4, kClassCount = 2000, kEach = 100;
  const Dataset dataset = labelled(kClassCount * kEach, kClassCount);
  for (const double a : {0.1, 0.5, 5.0}) {
    double squares = 0;
    for (const auto& counts : counts_of(dataset, {Kind::kDirichlet, a, 1}, kNodes)) {
      double sum = 0;
      for (const int64_t count : counts) {
        const double share = static_cast<double>(count) / kEach;
        sum += share;
        squares += (share - 0.25) * (share - 0.25);
      }
      EXPECT_NEAR(sum / kClassCount, 0.25, 0.03) << a;
    }
    EXPECT_NEAR(squares / (kNodes * kClassCount), 3.0 / (16 * (4 * a + 1)), 0.004) << a;
  }
}

TEST(PartitionWords, AreReadAndWritten) {
  for (const char* word : {"iid", "dirichlet:0.1", "dirichlet:100", "classes:5"}) {
    EXPECT_EQ(to_string(parse_partition(word).value()), word);
  }
  for (const char* word : {"", "idd", "dirichlet", "dirichlet:", "dirichlet:0", "dirichlet:0.001", "dirichlet:nan",
                           "dirichlet:1x", "classes:0", "classes:-1", "classes:1.5", "classes:", ":1"}) {
    EXPECT_FALSE(parse_partition(word)) << word;
  }
}

std::vector<int64_t> epoch_of_ranks(const Dataset& dataset, const std::vector<int64_t>& images, int64_t epoch) {
  std::vector<int64_t> seen;
  for (int64_t rank = 0; rank < 2; ++rank) {
    Loader loader(dataset, {.batch_size = 3, .rank = rank, .ranks = 2, .seed = seed_of_node(1, 0)}, images);
    EXPECT_EQ(loader.steps_per_epoch(), 3);
    for (int64_t step = 0; step < 3; ++step) {
      const at::Tensor labels = loader.batch(epoch, step).labels;
      seen.insert(seen.end(), labels.const_data_ptr<int64_t>(), labels.const_data_ptr<int64_t>() + labels.numel());
    }
  }
  return seen;
}

// 20 images of a node, of which 18 fill steps of 2 x 3; labels are the images' numbers.
TEST(LoaderOfANode, DealsItsOwnImagesOutToItsRanks) {
  const Dataset dataset = labelled(60, 60);
  std::vector<int64_t> images(20);
  for (size_t i = 0; i < images.size(); ++i) images[i] = static_cast<int64_t>(3 * i);
  const auto seen = epoch_of_ranks(dataset, images, 0);
  EXPECT_EQ(seen.size(), 18);
  for (const int64_t image : seen) EXPECT_EQ(std::count(seen.begin(), seen.end(), image), 1);
  EXPECT_THAT(seen, Each(testing::Truly([](int64_t image) { return image % 3 == 0; })));
  EXPECT_NE(seen, epoch_of_ranks(dataset, images, 1));
}

TEST(LoaderOfANode, HasAnOrderOfItsOwn) {
  EXPECT_NE(seed_of_node(1, 0), seed_of_node(1, 1));
  EXPECT_NE(seed_of_node(1, 0), seed_of_node(2, 0));
}

}  // namespace
}  // namespace prunex::data
