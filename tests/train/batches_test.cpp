#include "prunex/train/batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace prunex::train {
namespace {

using testing::ElementsAre;

std::vector<int64_t> sizes(int64_t images, int64_t most, int64_t fewest_of_export = 0, int64_t most_of_export = 0) {
  program::Graph graph;
  graph.fewest_images = fewest_of_export;
  graph.most_images = most_of_export;
  std::vector<int64_t> sizes;
  int64_t next = 5;
  for (const comm::Range& batch : batches_of({5, 5 + images}, graph, most)) {
    EXPECT_EQ(batch.begin, next);
    next = batch.end;
    sizes.push_back(batch.size());
  }
  EXPECT_EQ(next, 5 + images);
  return sizes;
}

TEST(Batches, AreAllImagesInOrder) {
  EXPECT_THAT(sizes(20, 8), ElementsAre(8, 8, 4));
  EXPECT_THAT(sizes(16, 8), ElementsAre(8, 8));
  EXPECT_THAT(sizes(0, 8), ElementsAre());
}

TEST(Batches, AreOfSizesThatTheExportAllows) {
  EXPECT_THAT(sizes(20, 64, 0, 9), ElementsAre(9, 9, 2));
  EXPECT_THAT(sizes(20, 64, 3, 9), ElementsAre(9, 8, 3));
  EXPECT_THAT(sizes(10, 64, 3, 9), ElementsAre(7, 3));
  EXPECT_THAT(sizes(40, 8, 16, 0), ElementsAre(16, 24));
  EXPECT_THAT(sizes(2, 64, 3, 9), ElementsAre(2));  // there are no more
}

}  // namespace
}  // namespace prunex::train
