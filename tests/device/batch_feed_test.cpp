// Batches that are made on the device: the loader's bits, and nothing that the host waits for.
#include "prunex/train/steps/batch_feed.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/device/late_streams.h"
#include "tests/device/pretend_device.h"
#include "tests/device/pretend_memory.h"
#include "tests/train/small_network.h"

namespace prunex::train {
namespace {

using tests::host_traffic;
using tests::HostTraffic;
using tests::pretend_device;

/// Images of noise, height x width.
data::Loader loader_of(int64_t channels, int64_t height, int64_t width, const data::Augmentation& augmentation) {
  data::Dataset set = noise_images(40);
  auto generator = at::detail::createCPUGenerator(9);
  set.images =
      at::randint(0, 256, {40, channels, height, width}, generator, at::TensorOptions(at::kLong)).to(at::kByte);
  set.mean.resize(static_cast<size_t>(channels));
  set.std.resize(static_cast<size_t>(channels));
  set.augmentation = augmentation;
  return {set, {.batch_size = 6, .rank = 1, .ranks = 2, .seed = 5}, {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 39, 37, 35}};
}

/// Whether a set lies on the device or is streamed.
class DeviceFeed : public testing::TestWithParam<bool> {
 protected:
  DeviceFeed() { tests::PretendMemory::instance().set_free(GetParam() ? size_t{1} << 30 : 1000); }
  ~DeviceFeed() override { tests::PretendMemory::instance().set_free(size_t{1} << 30); }
};

TEST_P(DeviceFeed, HasTheLoadersBits) {
  for (const data::Augmentation& augmentation :
       {data::Augmentation{},
        {.padding = 2},
        {.flip = true},
        {.padding = 3, .flip = true},
        {.padding = 9},
        {.flip = true, .color = 0.4, .operations = 2, .magnitude = 9, .erase = 0.5}}) {
    for (const int64_t channels : {1, 3}) {
      data::Loader loader = loader_of(channels, 5, 8, augmentation);
      const auto feed = make_batch_feed(loader, pretend_device());
      for (const int64_t epoch : {0, 4, 1, 2}) {
        feed->load(epoch, 0);
        const auto here = loader.batch(epoch, 0), there = feed->batch();
        EXPECT_TRUE(there.images.cpu().equal(here.images));
        EXPECT_TRUE(there.labels.cpu().equal(here.labels));
        EXPECT_EQ(there.images.strides(), here.images.strides());
      }
    }
  }
}

/// Many batches are on their way before anybody looks at one.
TEST_P(DeviceFeed, GivesStepsTheirOwnBatchesHoweverLateTheyRun) {
  data::Loader loader = loader_of(3, 5, 8, {.padding = 2, .flip = true});
  std::vector<data::Batch> batches;
  {
    const tests::LateStreams late;
    const auto feed = make_batch_feed(loader, pretend_device());
    for (int64_t epoch = 0; epoch < 7; ++epoch) {
      feed->load(epoch, 0);
      const auto now = feed->batch();
      batches.push_back({now.images.clone(), now.labels.clone()});
    }
  }
  for (size_t epoch = 0; epoch < batches.size(); ++epoch) {
    const auto wanted = loader.batch(static_cast<int64_t>(epoch), 0);
    EXPECT_TRUE(batches[epoch].images.cpu().equal(wanted.images)) << epoch;
    EXPECT_TRUE(batches[epoch].labels.cpu().equal(wanted.labels)) << epoch;
  }
}

TEST_P(DeviceFeed, MakesTheHostWaitForNothingInTheSameMemory) {
  const auto feed = make_batch_feed(loader_of(3, 8, 8, {.padding = 2, .flip = true}), pretend_device());
  const auto inputs = feed->inputs();
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    feed->load(epoch, 0);
    feed->batch();
  }
  const HostTraffic before = host_traffic();
  for (int64_t epoch = 2; epoch < 6; ++epoch) {
    feed->load(epoch, 0);
    feed->batch();
  }
  const HostTraffic steps = host_traffic() - before;
  EXPECT_EQ(steps.reads, 0);
  EXPECT_EQ(steps.uploads, 0);
  EXPECT_EQ(steps.grown, 0);
  const auto later = feed->inputs();
  ASSERT_EQ(later.size(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) EXPECT_TRUE(later[i].is_same(inputs[i]));
}

INSTANTIATE_TEST_SUITE_P(OnTheDevice, DeviceFeed, testing::Bool(),
                         [](const auto& info) { return info.param ? "Resident" : "Streamed"; });

TEST(BatchFeed, LiesOnTheDeviceIfItTakesAQuarterOfItsFreeMemory) {
  auto& memory = tests::PretendMemory::instance();
  const auto loader = loader_of(3, 8, 8, {});
  const size_t bytes = loader.dataset().images.nbytes() + loader.dataset().labels.nbytes();
  const auto inputs_at = [&](size_t free) {
    memory.set_free(free);
    return make_batch_feed(loader, pretend_device())->inputs().size();
  };
  EXPECT_EQ(inputs_at(4 * bytes), 1U) << "draws";
  EXPECT_EQ(inputs_at(4 * bytes - 1), 2U) << "images and labels";
  memory.set_free(size_t{1} << 30);
}

TEST(BatchFeed, StreamsImagesThatAreMoreThanCroppedAndMirrored) {
  const auto inputs_with = [](const data::Augmentation& augmentation) {
    return make_batch_feed(loader_of(3, 8, 8, augmentation), pretend_device())->inputs().size();
  };
  EXPECT_EQ(inputs_with({.padding = 2, .flip = true}), 1U) << "draws";
  EXPECT_EQ(inputs_with({.flip = true, .erase = 0.5}), 2U) << "images and labels";
}

TEST(BatchFeed, IsTheLoaderOnTheCpu) {
  data::Loader loader = loader_of(3, 8, 8, {.padding = 2, .flip = true});
  const auto feed = make_batch_feed(loader, at::kCPU);
  feed->load(3, 0);
  EXPECT_TRUE(feed->batch().images.equal(loader.batch(3, 0).images));
}

}  // namespace
}  // namespace prunex::train
