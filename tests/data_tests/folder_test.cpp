// Folders of images: what is listed, batches of what is streamed, what is broken.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>

#include "prunex/data/augment.h"
#include "prunex/data/decode.h"
#include "prunex/data/encoded_images.h"
#include "prunex/data/image_stream.h"
#include "prunex/data/load.h"
#include "prunex/data/loader.h"
#include "tests/data_tests/encoded.h"
#include "tests/scratch.h"

namespace prunex::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

void write(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

/// Three classes of eight images for training, of two to test on; sizes differ.
class Folders : public testing::Test {
 protected:
  Folders() {
    int seed = 0;
    for (const char* name : {"ant", "bee", "cat"}) {
      for (int i = 0; i < 8; ++i) add(std::string("train/") + name, i, seed++);
      for (int i = 0; i < 2; ++i) add(std::string("val/") + name, i, seed++);
    }
  }
  void add(const std::string& folder, int i, int seed) {
    const int height = 20 + seed % 5, width = 24 + seed % 7;
    write(scratch_ / ("set/" + folder + "/" + std::to_string(i) + ".jpg"),
          jpeg_of(waves(height, width, 3, seed), height, width));
  }
  DataOptions options() const {
    DataOptions options;
    options.dataset = scratch_ / "set";
    options.image_size = 16;
    return options;
  }
  void refused(const DataOptions& options, const std::string& reason) {
    EXPECT_THAT([&] { load_datasets(options); }, ThrowsMessage<std::invalid_argument>(HasSubstr(reason)));
  }

  const tests::Scratch scratch_;
};

TEST_F(Folders, AreListedByClassAndName) {
  const Datasets sets = load_datasets(options());
  EXPECT_EQ(sets.train.name, "set");
  EXPECT_EQ(sets.train.class_names, (std::vector<std::string>{"ant", "bee", "cat"}));
  EXPECT_EQ(sets.train.size(), 24);
  EXPECT_EQ(sets.test.size(), 6);
  EXPECT_EQ(sets.train.image_shape(), (std::vector<int64_t>{3, 16, 16}));
  EXPECT_TRUE(sets.train.labels.equal(at::arange(24, at::kLong).floor_divide(8)));
  EXPECT_EQ(sets.train.streamed.stream->images().name(9), scratch_ / "set/train/bee/1.jpg");
  EXPECT_EQ(to_string(sets.train.augmentation), "resized-crop:16,flip");
  EXPECT_EQ(sets.train.mean, (std::vector<double>{0.485, 0.456, 0.406}));
}

TEST_F(Folders, GiveTheSameBatchesWhateverTheThreads) {
  DataOptions other = options();
  other.augment = parse_augmentation("resized-crop:16,flip,color:0.4,randaugment:2:9,erase:0.5");
  other.data_threads = 1;
  other.prefetch = 1;
  Loader one(load_datasets(other).train, {.batch_size = 4, .seed = 7});
  other.data_threads = 5;
  other.prefetch = 3;
  Loader many(load_datasets(other).train, {.batch_size = 4, .seed = 7});
  for (const auto& [epoch, step] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 0}, {0, 1}, {0, 5}, {1, 0}, {4, 2}, {0, 1}}) {
    const Batch first = one.batch(epoch, step), second = many.batch(epoch, step);
    EXPECT_TRUE(first.images.equal(second.images)) << epoch << ", " << step;
    EXPECT_TRUE(first.labels.equal(second.labels));
    EXPECT_TRUE(first.images.is_contiguous(at::MemoryFormat::ChannelsLast));
  }
  Loader fresh(load_datasets(other).train, {.batch_size = 4, .seed = 7});
  EXPECT_TRUE(fresh.batch(4, 2).images.equal(one.batch(4, 2).images)) << "resumed";
}

TEST_F(Folders, AreSharedByRanksAsOneStep) {
  const Dataset train = load_datasets(options()).train;
  const at::Tensor whole = Loader(train, {.batch_size = 8, .seed = 1}).batch(1, 1).images;
  std::vector<at::Tensor> parts;
  for (const int64_t rank : {0, 1})
    parts.push_back(Loader(train, {.batch_size = 4, .rank = rank, .ranks = 2, .seed = 1}).batch(1, 1).images);
  EXPECT_TRUE(whole.equal(at::cat(parts)));
}

TEST_F(Folders, HaveTheirPixelsNormalisedOrNot) {
  const Dataset train = load_datasets(options()).train;
  const Batch floats = Loader(train, {.batch_size = 6}).batch(0, 0);
  Batch bytes{at::empty({6, 3, 16, 16}, at::kByte).contiguous(at::MemoryFormat::ChannelsLast),
              at::empty({6}, at::kLong)};
  Loader(train, {.batch_size = 6}).pixels(0, 0, bytes);
  const at::Tensor mean = at::tensor(train.mean).view({-1, 1, 1}), std = at::tensor(train.std).view({-1, 1, 1});
  EXPECT_TRUE(
      at::allclose(floats.images.to(at::kDouble), (bytes.images.to(at::kDouble) / 255 - mean) / std, 1e-5, 1e-5));
  EXPECT_TRUE(floats.labels.equal(bytes.labels));
}

TEST_F(Folders, CanBeCroppedAndMirroredAsSmallImages) {
  DataOptions small = options();
  small.resize = 16;
  small.augment = parse_augmentation("crop:2,flip");
  const Dataset train = load_datasets(small).train;
  const Batch batch = Loader(train, {.batch_size = 24}).batch(0, 0);
  EXPECT_EQ(batch.images.sizes(), (std::vector<int64_t>{24, 3, 16, 16}));
  EXPECT_TRUE((batch.images == batch.images.min()).any().item<bool>());
}

// Calibration takes epoch 0's images as training sees them.
TEST_F(Folders, CalibrateOnTheFirstAugmentedImages) {
  const Dataset train = load_datasets(options()).train;
  const Dataset calibration = first_augmented(train, 3, 10);
  EXPECT_EQ(calibration.size(), 10);
  const Batch seen = Loader(train, {.batch_size = 10, .seed = 3}).batch(0, 0);
  const Batch got = evaluation_batch(calibration, 0, 10);
  EXPECT_TRUE(got.images.equal(seen.images));
  EXPECT_TRUE(got.labels.equal(seen.labels));
  EXPECT_TRUE(evaluation_batch(take_first(calibration, 4, ""), 1, 4).images.equal(seen.images.slice(0, 1, 4)));
}

TEST_F(Folders, AreHeldOutAcrossClasses) {
  DataOptions some = options();
  some.train_limit = 20;
  some.validation = 12;
  const Datasets sets = load_datasets(some);
  EXPECT_EQ(sets.train.size(), 8);
  EXPECT_EQ(sets.validation.size(), 12);
  EXPECT_EQ(std::get<0>(at::_unique(sets.validation.labels)).numel(), 3) << "not the last classes alone";
  std::set<std::string> names;
  for (const Dataset* set : {&sets.train, &sets.validation}) {
    for (int64_t i = 0; i < set->size(); ++i) {
      const int64_t number = set->streamed.number_of(i);
      names.insert(set->streamed.stream->images().name(number));
      EXPECT_EQ(number / 8, set->labels[i].item<int64_t>());
    }
  }
  EXPECT_EQ(names.size(), 20U) << "no image twice";
  EXPECT_EQ(checksum(sets.train), checksum(load_datasets(some).train));
  EXPECT_NE(checksum(sets.train), checksum(sets.validation));
}

TEST_F(Folders, ReplaceWhatIsBrokenAndCountIt) {
  write(scratch_ / "set/train/ant/0.jpg", "<html>");
  std::filesystem::remove(scratch_ / "set/train/bee/3.jpg.not");
  DataOptions strict = options();
  strict.augment = Augmentation{};
  const Dataset train = load_datasets(strict).train;
  std::filesystem::remove(scratch_ / "set/train/bee/3.jpg");  // while the run goes on
  testing::internal::CaptureStderr();
  const Batch batch = evaluation_batch(train, 0, 24);
  evaluation_batch(train, 0, 24);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(batch.images[0].equal(batch.images[1])) << "the next one";
  EXPECT_TRUE(batch.images[11].equal(batch.images[12]));
  EXPECT_EQ(train.streamed.stream->broken().size(), 2U);
  EXPECT_THAT(said, AllOf(HasSubstr("ant/0.jpg: neither JPEG nor PNG nor WebP: the next image takes its place"),
                          HasSubstr("bee/3.jpg: No such file or directory")));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2) << "each once";
}

/// Of images 0 to 7, the ants, a node has the last four, of which the last is broken.
TEST_F(Folders, ReplaceWhatIsBrokenOfANodesOwnByItsOwn) {
  write(scratch_ / "set/train/ant/7.jpg", "<html>");
  Loader loader(load_datasets(options()).train, {.batch_size = 4}, {6, 4, 7, 5});
  testing::internal::CaptureStderr();
  const Batch batch = loader.batch(0, 0);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("ant/7.jpg"));
  EXPECT_EQ(batch.labels.max().item<int64_t>(), 0);
}

TEST_F(Folders, OfNumbersAreTestedInTheirOrderWhereANetworkHasNoNames) {
  for (const char* name : {"10", "2", "9"}) add(name, 0, 1);
  DataOptions alone = options();
  alone.test = scratch_ / "set";
  std::filesystem::remove_all(scratch_ / "set/train");
  std::filesystem::remove_all(scratch_ / "set/val");
  EXPECT_TRUE(std::get<0>(open_test_stream(alone, {}).labels.sort()).equal(at::tensor({2, 9, 10}, at::kLong)));
  add("ant", 0, 1);
  EXPECT_TRUE(std::get<0>(open_test_stream(alone, {}).labels.sort()).equal(at::tensor({0, 1, 2, 3}, at::kLong)));
}

TEST_F(Folders, WhoseNamesNoNetworkCanCarryAreRefused) {
  add("train/z\xff", 0, 1);
  refused(options(), "its name is not UTF-8");
}

TEST_F(Folders, DoNotWaitForTheWriterOfANamedPipe) {
  const std::string pipe = scratch_ / "set/train/ant/pipe.jpg";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT([&] { read_bytes(pipe, 0, -1); }, ThrowsMessage<BrokenImage>(HasSubstr("not a file")));
}

TEST_F(Folders, EndTheRunWithTooManyBrokenFiles) {
  write(scratch_ / "set/train/ant/0.jpg", "<html>");
  write(scratch_ / "set/train/ant/5.jpg", "<html>");
  DataOptions strict = options();
  strict.max_broken = 1;
  Loader loader(load_datasets(strict).train, {.batch_size = 24});
  testing::internal::CaptureStderr();
  EXPECT_THAT([&] { loader.batch(0, 0); },
              ThrowsMessage<std::runtime_error>(
                  AllOf(HasSubstr(".jpg: neither JPEG"), HasSubstr("broken file number 2, `max_broken` allows 1"))));
  testing::internal::GetCapturedStderr();
}

TEST_F(Folders, ThatAreNotSoAreRefused) {
  DataOptions wrong = options();
  wrong.test = scratch_ / "nowhere";
  refused(wrong, "`test`: " + wrong.test + ": No such file");
  wrong = options();
  wrong.dataset = scratch_ / "set/train";
  refused(wrong, "no folder train in it");
  wrong = options();
  wrong.resize = 8;
  refused(wrong, "`resize`: got 8, wanted 16 or more");
  add("val/dog", 0, 1);
  refused(options(), "a class that training does not have: 'dog'");
  std::filesystem::create_directories(scratch_ / "set/train/dog");
  refused(options(), "train/dog: a class without images");
  write(scratch_ / "set/train/dog/1.bmp", "BM");
  refused(options(), "1.bmp: wanted JPEG, PNG or WebP");
  std::filesystem::remove_all(scratch_ / "set/val");
  refused(options(), "no folder val in it");
}

TEST_F(Folders, OfTooFewImagesAreRefused) {
  EXPECT_THAT([&] { Loader(load_datasets(options()).train, {.batch_size = 13, .ranks = 2}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("a step takes 2 x 13 images")));
}

}  // namespace
}  // namespace prunex::data
