// Subsets and statistics of data sets, and the door that the options go through.
#include "prunex/data/dataset.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "prunex/data/load.h"

namespace prunex::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

Dataset numbered(int64_t size) {
  return {.name = "numbered",
          .images = at::arange(size * 12, at::kLong).remainder(256).to(at::kByte).reshape({size, 3, 2, 2}),
          .labels = at::arange(size, at::kLong),
          .classes = size,
          .mean = {},
          .std = {},
          .augmentation = {}};
}

TEST(Dataset, TakesTheFirstImages) {
  Dataset five = take_first(numbered(8), 5, "`train_limit`");
  EXPECT_EQ(five.size(), 5);
  EXPECT_TRUE(at::equal(five.labels, at::arange(5, at::kLong)));
  EXPECT_TRUE(at::equal(five.images, numbered(8).images.narrow(0, 0, 5)));
  EXPECT_EQ(take_first(numbered(8), 8, "`train_limit`").size(), 8);
}

TEST(Dataset, HoldsOutTheLastImages) {
  auto [train, validation] = split_validation(numbered(8), 3);
  EXPECT_TRUE(at::equal(train.labels, at::arange(5, at::kLong)));
  EXPECT_TRUE(at::equal(validation.labels, at::arange(5, 8, at::kLong)));
  EXPECT_TRUE(at::equal(validation.images, numbered(8).images.narrow(0, 5, 3)));
}

TEST(Dataset, NamesTheOptionOfAnImpossibleSubset) {
  for (int64_t n : {-1, 0, 9}) {
    EXPECT_THAT([&] { take_first(numbered(8), n, "`test_limit`"); },
                ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("`test_limit`"), HasSubstr("wanted 1 … 8"))));
  }
  for (int64_t n : {-1, 0, 8}) {
    EXPECT_THAT([&] { split_validation(numbered(8), n); },
                ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("`validation`"), HasSubstr("1 … 7"))));
  }
}

// Expected: ATen's mean and standard deviation over all pixels.
TEST(Dataset, StatisticsAreThoseOfThePixels) {
  Dataset dataset = numbered(9);
  set_statistics(dataset);
  at::Tensor scaled = dataset.images.to(at::kDouble) / 255.0;
  at::Tensor mean = scaled.mean({0, 2, 3});
  at::Tensor std = scaled.std(std::vector<int64_t>{0, 2, 3}, /*unbiased=*/false);
  for (int64_t c = 0; c < 3; ++c) {
    EXPECT_NEAR(dataset.mean[c], mean[c].item<double>(), 1e-12);
    EXPECT_NEAR(dataset.std[c], std[c].item<double>(), 1e-12);
  }
}

TEST(Dataset, AConstantChannelCanBeNormalised) {
  Dataset dataset = numbered(2);
  dataset.images = at::full({2, 1, 2, 2}, 51, at::kByte);
  set_statistics(dataset);
  EXPECT_DOUBLE_EQ(dataset.mean[0], 0.2);
  EXPECT_DOUBLE_EQ(dataset.std[0], 1.0 / 255.0);
}

TEST(Dataset, IsRefusedIfTypesShapesOrLabelsAreWrong) {
  auto refused = [](auto change, const std::string& reason) {
    Dataset dataset = numbered(4);
    change(dataset);
    EXPECT_THAT([&] { check_dataset(dataset, "file"); },
                ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("file: "), HasSubstr(reason))));
  };
  check_dataset(numbered(4), "file");
  refused([](Dataset& d) { d.images = d.images.to(at::kFloat); }, "got Float [4 x 3 x 2 x 2]");
  refused([](Dataset& d) { d.images = d.images.reshape({4, 12}); }, "got Byte [4 x 12]");
  refused([](Dataset& d) { d.images = d.images.narrow(0, 0, 0); }, "not empty");
  refused([](Dataset& d) { d.labels = d.labels.to(at::kInt); }, "got Int [4]");
  refused([](Dataset& d) { d.labels = d.labels.narrow(0, 0, 3); }, "int64 [4], one per image, got Long [3]");
  refused([](Dataset& d) { d.labels = d.labels - 1; }, "labels must be in 0 … 3, got -1 … 2");
  refused([](Dataset& d) { d.classes = 3; }, "labels must be in 0 … 2, got 0 … 3");
}

TEST(LoadDatasets, AppliesTheLimitsAndThenHoldsOut) {
  Datasets data = load_datasets({.samples = 100, .train_limit = 60, .test_limit = 15, .validation = 20});
  EXPECT_EQ(data.train.size(), 40);
  EXPECT_EQ(data.validation.size(), 20);
  EXPECT_EQ(data.test.size(), 15);
  at::Tensor all = make_synthetic(100, 0).train.images;
  EXPECT_TRUE(at::equal(data.validation.images, all.narrow(0, 40, 20)));
}

TEST(LoadDatasets, HoldsOutNothingUnlessAsked) {
  Datasets data = load_datasets({.samples = 100});
  EXPECT_EQ(data.train.size(), 100);
  EXPECT_EQ(data.validation.size(), 0);
  EXPECT_EQ(data.test.size(), 20);
}

TEST(LoadDatasets, NamesTheWrongOption) {
  auto refused = [](const DataOptions& options, const std::string& reason) {
    EXPECT_THAT([&] { load_datasets(options); }, ThrowsMessage<std::invalid_argument>(HasSubstr(reason)));
  };
  refused({.dataset = "mnist"},
          "`dataset`: got mnist, wanted one of synthetic, cifar10, cifar100, FILE.safetensors, a folder, shards");
  refused({.dataset = "cats.safetensors"}, "`dataset` cats.safetensors: `test` FILE.safetensors is wanted too");
  refused({.dataset = "cifar10", .test = "a.safetensors"}, "`test` a.safetensors: goes with `dataset`");
  refused({.samples = 9}, "`samples`: got 9");
  refused({.samples = -1}, "`samples`: got -1");
  refused({.samples = 100, .train_limit = 101}, "`train_limit`: got 101");
  refused({.samples = 100, .train_limit = -1}, "`train_limit`: got -1");
  refused({.samples = 100, .test_limit = 21}, "`test_limit`: got 21");
  refused({.samples = 100, .train_limit = 50, .validation = 50}, "`validation`: got 50");
  refused({.dataset = "cifar10", .data_dir = "/nowhere"}, "`data_dir` /nowhere");
}

}  // namespace
}  // namespace prunex::data
