// What commands say of the images that they are given.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/image_files.h"
#include "tests/scratch.h"
#include "tests/tools/in_process.h"

namespace prunex::tools {
namespace {

using testing::EndsWith;

/// The network of a file that takes images of 32 x 32, and says with which numbers they are normalised.
class Images : public testing::Test {
 protected:
  Images() {
    const Result made = run({"prune", "--model", "resnet8", "--ratio", "0", "--dataset", "synthetic", "--samples", "40",
                             "--output", scratch_ / "made", "--quiet"});
    EXPECT_EQ(made.status, 0) << made.errors;
  }

  const tests::Scratch scratch_;
  const std::string model_ = scratch_ / "made/model.pt2";
};

TEST_F(Images, AreNamedByEval) {
  const Result built_in = run({"eval", "--model", model_, "--samples", "40"});
  EXPECT_THAT(built_in.output, EndsWith("  on synthetic, images that are built in\n")) << built_in.errors;
  tests::write_images(scratch_ / "test.safetensors", 20, 10);
  const Result own = run({"eval", "--model", model_, "--test", scratch_ / "test.safetensors"});
  EXPECT_THAT(own.output, EndsWith("  on " + scratch_ / "test.safetensors" + "\n")) << own.errors;
}

/// One line: no remarks on images that are not taken.
TEST_F(Images, OfOtherClassesAreRefusedInOneLine) {
  for (const char* name : {"train.safetensors", "test.safetensors"}) tests::write_images(scratch_ / name, 22, 11);
  refused(
      {"eval", "--model", model_, "--dataset", scratch_ / "train.safetensors", "--test", scratch_ / "test.safetensors"},
      {"its output is [batch, 10]", "has 11 classes"});
}

TEST_F(Images, OfAnotherSizeAreRefusedWithTheOptionThatChoosesIt) {
  for (const char* part : {"set/train/a", "set/train/b", "set/val/a", "set/val/b"}) {
    std::filesystem::create_directories(scratch_ / part);
    for (const char* name : {"/1.jpg", "/2.jpg"}) {
      std::filesystem::copy_file(PRUNEX_TEST_DATA "/images/train.jpg", scratch_ / part + name);
    }
  }
  refused({"train", "--check", "--dataset", scratch_ / "set", "--model", model_, "--batch-size", "2"},
          {"are [batch, 3, 224, 224]; wanted --image-size 32"});
}

}  // namespace
}  // namespace prunex::tools
