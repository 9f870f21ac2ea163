// Anyone's own images in safetensors files.
#include "prunex/data/load.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "prunex/io/safetensors.h"
#include "tests/scratch.h"

namespace prunex::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;
using tests::Scratch;

std::string write(const std::string& path, const at::Tensor& images, const at::Tensor& labels) {
  TensorDict tensors;
  tensors.insert("images", images);
  tensors.insert("labels", labels);
  io::write_safetensors(path, tensors);
  return path;
}

at::Tensor grey(int64_t size, int64_t side = 4) {
  return at::arange(size * side * side, at::kLong).remainder(256).to(at::kByte).reshape({size, 1, side, side});
}

at::Tensor labels(std::initializer_list<int64_t> values) {
  return at::tensor(values, at::kLong);
}

TEST(ImageFile, TakesClassesAndStatisticsFromTraining) {
  Scratch scratch;
  std::string train = write(scratch / "cats.safetensors", grey(3), labels({0, 4, 1}));
  std::string test = write(scratch / "b.safetensors", grey(2).add(100), labels({3, 0}));
  Datasets data = read_image_files(train, test);
  EXPECT_EQ(data.train.name, "cats");
  EXPECT_EQ(data.train.classes, 5);
  EXPECT_EQ(data.test.classes, 5);
  EXPECT_TRUE(at::equal(data.train.images, grey(3)));
  EXPECT_TRUE(at::equal(data.test.labels, labels({3, 0})));
  EXPECT_NEAR(data.train.mean[0], 23.5 / 255, 1e-12);  // of 0 … 47
  EXPECT_EQ(data.test.mean, data.train.mean);
  EXPECT_EQ(data.test.std, data.train.std);
}

TEST(ImageFile, RefusesTestLabelsThatTrainingDoesNotHave) {
  Scratch scratch;
  std::string train = write(scratch / "a.safetensors", grey(3), labels({0, 1, 2}));
  std::string test = write(scratch / "b.safetensors", grey(2), labels({1, 3}));
  EXPECT_THAT([&] { read_image_files(train, test); },
              ThrowsMessage<std::invalid_argument>(
                  AllOf(HasSubstr(test + ": labels go up to 3"), HasSubstr("those of " + train + " to 2"))));
}

TEST(ImageFile, ByItselfHasNoStatistics) {
  Scratch scratch;
  const Dataset test = read_image_file(write(scratch / "b.safetensors", grey(2), labels({0, 3})));
  EXPECT_EQ(test.classes, 4);
  EXPECT_TRUE(test.mean.empty() && test.std.empty());
}

TEST(ImageFile, NamesTheFileThatIsNotImages) {
  Scratch scratch;
  std::string good = write(scratch / "good.safetensors", grey(2), labels({0, 1}));
  std::string bad = scratch / "bad.safetensors";
  auto refused = [&](const at::Tensor& images, const at::Tensor& labels, const std::string& reason) {
    write(bad, images, labels);
    EXPECT_THAT([&] { read_image_files(bad, good); },
                ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr(bad), HasSubstr(reason))));
    EXPECT_THAT([&] { read_image_files(good, bad); },
                ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr(bad), HasSubstr(reason))));
  };
  refused(grey(2).to(at::kFloat), labels({0, 1}), "uint8");
  refused(grey(2), labels({0, 1, 1}), "one per image");
  refused(grey(2), labels({0, std::numeric_limits<int64_t>::max()}), "labels must be in 0 … 16777215, got 0 … 92233");
  refused(grey(2), at::tensor({0.0, std::nan("")}), "labels must be int64");
  refused(grey(2), labels({0, -1}), "got -1");
  refused(grey(2), at::empty({0}, at::kLong), "one per image");
  refused(grey(2), labels({0, 1}).to(at::kFloat), "int64");
  refused(at::zeros({2, 8, 8, 3}, at::kByte), labels({0, 1}), "channels come first");
}

// Nobody trains on a file of tests, nor on a node's share, alone.
TEST(ImageFile, HasNoMoreClassesThanImagesWhereItIsAllThatIsTrainedOn) {
  Scratch scratch;
  const std::string many = write(scratch / "many.safetensors", grey(2), labels({0, 1000}));
  const std::string few = write(scratch / "few.safetensors", grey(2), labels({0, 1}));
  EXPECT_THAT([&] { read_image_files(many, few); },
              ThrowsMessage<std::invalid_argument>(
                  HasSubstr("many.safetensors: labels go up to 1000, more classes than the 2 images")));
  EXPECT_EQ(read_image_files(many, few, true).train.classes, 1001);
  EXPECT_THAT([&] { read_image_files(few, many); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("many.safetensors: labels go up to 1000")));
}

TEST(ImageFile, RefusesTwoShapes) {
  Scratch scratch;
  std::string train = write(scratch / "a.safetensors", grey(2), labels({0, 1}));
  std::string test = write(scratch / "b.safetensors", grey(2, 5), labels({0, 1}));
  EXPECT_THAT([&] { read_image_files(train, test); },
              ThrowsMessage<std::invalid_argument>(
                  AllOf(HasSubstr(test + ": images of 1 x 5 x 5"), HasSubstr(train + " have 1 x 4 x 4"))));
}

TEST(ImageFile, NamesAMissingTensorAndAMissingFile) {
  Scratch scratch;
  TensorDict tensors;
  tensors.insert("x", grey(2));
  io::write_safetensors(scratch / "a.safetensors", tensors);
  EXPECT_THAT([&] { read_image_files(scratch / "a.safetensors", scratch / "a.safetensors"); },
              ThrowsMessage<std::runtime_error>(HasSubstr("a.safetensors has no tensor images")));
  EXPECT_THAT([&] { read_image_files(scratch / "no.safetensors", scratch / "a.safetensors"); },
              ThrowsMessage<std::runtime_error>(HasSubstr("no.safetensors: No such file")));
}

}  // namespace
}  // namespace prunex::data
