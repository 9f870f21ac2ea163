// Which numbers images are normalised by: the network's file's, where it says some; and whether they are the same ones.
#include "prunex/train/images/images.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "prunex/data/image_stream.h"
#include "prunex/program/pt2.h"
#include "prunex/train/elastic/handover.h"
#include "prunex/train/product.h"
#include "tests/scratch.h"
#include "tests/texts.h"
#include "tests/train/small_network.h"
#include "tests/train/whole_runs.h"

namespace prunex::train {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using testing::ThrowsMessage;

const data::Description kNumbers{.mean = {0.1, 0.2, 0.3}, .std = {0.5, 0.6, 0.7}, .classes = {}};
const data::Description kOthers{.mean = {0.7, 0.7, 0.7}, .std = {1, 1, 1}, .classes = {}};

data::DataOptions few_images() {
  data::DataOptions options;
  options.samples = 50;
  options.validation = 10;
  return options;
}

class CarriedDescription : public testing::Test {
 protected:
  CarriedDescription() { write_product(scratch_.path(), small_network(), kNumbers); }

  const tests::Scratch scratch_;
  const std::string model_ = scratch_ / "model.pt2", weights_ = scratch_ / "model.safetensors";
};

TEST_F(CarriedDescription, IsInBothFilesOfAProduct) {
  for (const auto& carried : {carried_description(model_, ""), carried_description("resnet8", weights_)}) {
    ASSERT_TRUE(carried);
    EXPECT_EQ(carried->description.mean, kNumbers.mean);
    EXPECT_EQ(carried->description.std, kNumbers.std);
  }
}

TEST_F(CarriedDescription, OfWeightsWins) {
  write_product(scratch_.path(), small_network(), kOthers);
  const std::string other = scratch_ / "other.pt2";
  program::write_pt2(other, small_network(), {{data::kDescriptionName, data::description_json(kNumbers)}});
  EXPECT_EQ(carried_description(other, weights_)->description.mean, kOthers.mean);
  EXPECT_EQ(carried_description(other, weights_)->file, weights_);
}

TEST_F(CarriedDescription, IsNoneInFilesOfOthersAndInBuiltInNetworks) {
  write_product(scratch_.path(), small_network(), std::nullopt);
  EXPECT_FALSE(carried_description(model_, weights_));
  EXPECT_FALSE(carried_description("resnet8", ""));
}

TEST_F(CarriedDescription, NamesTheFileWhoseTextIsNone) {
  program::write_pt2(model_, small_network(), {{data::kDescriptionName, "no JSON"}});
  EXPECT_THAT([&] { carried_description(model_, ""); },
              ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr(model_), HasSubstr("prunex.json"))));
}

TEST(LoadImages, TakesTheNumbersOfTheSetWithoutOthers) {
  const RunImages images = load_images(few_images(), std::nullopt);
  EXPECT_TRUE(images.remarks.empty());
  EXPECT_EQ(images.description.mean, images.sets.train.mean);
  EXPECT_THAT(images.description.classes, SizeIs(10));
}

TEST(LoadImages, NormalisesAllSetsByTheFilesNumbersAndSaysSo) {
  const RunImages images = load_images(few_images(), Carried{kNumbers, "net.pt2"});
  for (const auto* set : {&images.sets.train, &images.sets.validation, &images.sets.test}) {
    EXPECT_EQ(set->mean, kNumbers.mean);
    EXPECT_EQ(set->std, kNumbers.std);
  }
  EXPECT_EQ(images.description.mean, kNumbers.mean);
  EXPECT_THAT(images.remarks, ElementsAre(AllOf(HasSubstr("as net.pt2 says (mean 0.1, 0.2, 0.3, std 0.5, 0.6, 0.7)"),
                                                HasSubstr("not as synthetic says (mean "))));
}

TEST(LoadImages, SaysNothingWhereTheNumbersAreTheSetsOwn) {
  const data::Description own = load_images(few_images(), std::nullopt).description;
  EXPECT_TRUE(load_images(few_images(), Carried{own, "net.pt2"}).remarks.empty());
}

/// Folders of two classes, with one file each that nobody reads: its name is what counts.
data::Dataset images_in(const std::string& folder, const std::string& file) {
  for (const std::string part : {"train/ant", "train/bee", "val/ant", "val/bee"}) {
    std::filesystem::create_directories(folder + "/" + part);
    std::ofstream(folder + "/" + part + "/" + file) << "image";
  }
  data::DataOptions options;
  options.dataset = folder;
  return data::load_datasets(options).train;
}

TEST(LoadImages, AreScaledAsTheNetworksWereUnlessTheyHaveAnotherSize) {
  const tests::Scratch scratch;
  images_in(scratch / "set", "0.jpg");
  const auto resize_at = [&](int64_t size, int64_t crop) {
    data::DataOptions options;
    options.dataset = scratch / "set";
    options.image_size = size;
    Carried carried{kNumbers, "net.pt2"};
    carried.description.resize = 232;
    carried.description.crop = crop;
    return load_images(options, carried).sets.test.streamed.stream->options().resize;
  };
  EXPECT_EQ(resize_at(224, 224), 232);
  EXPECT_EQ(resize_at(224, 0), 232);
  EXPECT_EQ(resize_at(112, 224), 128);
  EXPECT_EQ(resize_at(112, 0), 232) << "of a file that does not say";
}

TEST(LoadImages, CountFoldersThatAreNumbersByTheseWhereClassesHaveNoNames) {
  const tests::Scratch scratch;
  for (const std::string part : {"train/2", "train/10", "val/2", "val/10"}) {
    std::filesystem::create_directories(scratch / "set" + "/" + part);
    std::ofstream(scratch / "set" + "/" + part + "/0.jpg") << "image";
  }
  data::DataOptions options;
  options.dataset = scratch / "set";
  EXPECT_TRUE(load_images(options, std::nullopt).sets.test.labels.equal(at::tensor({0, 1}, at::kLong)));
  const RunImages by_value = load_images(options, Carried{kNumbers, "net.pt2"});
  EXPECT_EQ(by_value.sets.train.classes, 11);
  for (const auto* set : {&by_value.sets.train, &by_value.sets.test}) {
    EXPECT_EQ(set->labels.min().item<int64_t>(), 2);
    EXPECT_EQ(set->labels.max().item<int64_t>(), 10);
  }
}

TEST(LoadImages, CountLabelsByTheNamesOfTheNetworkWhereItKnowsThem) {
  const tests::Scratch scratch;
  images_in(scratch / "set", "0.jpg");
  data::DataOptions options;
  options.dataset = scratch / "set";
  Carried carried{kNumbers, "net.pt2"};
  carried.description.classes = {"aardvark", "ant", "bee", "cow"};
  const RunImages known = load_images(options, carried);
  EXPECT_EQ(known.description.classes, carried.description.classes);
  EXPECT_EQ(known.sets.train.classes, 4);
  EXPECT_TRUE(known.sets.train.labels.equal(at::tensor({1, 2}, at::kLong)));
  EXPECT_TRUE(known.sets.test.labels.equal(at::tensor({1, 2}, at::kLong)));
  carried.description.classes = {"ant", "wasp"};
  const RunImages others = load_images(options, carried);
  EXPECT_THAT(others.description.classes, ElementsAre("ant", "bee"));
  EXPECT_THAT(others.remarks,
              testing::Contains("warning: net.pt2 knows the classes ant and wasp; set has ant and bee"));
}

TEST(LoadImages, AreResizedAsTheNetworkSaysUnlessTheOptionsDo) {
  const tests::Scratch scratch;
  images_in(scratch / "set", "0.jpg");
  data::DataOptions options;
  options.dataset = scratch / "set";
  options.image_size = 32;
  Carried carried{kNumbers, "net.pt2"};
  const auto resize = [&] { return load_images(options, carried).description.resize; };
  EXPECT_EQ(resize(), 36);
  carried.description.resize = 34;
  EXPECT_EQ(resize(), 34);
  options.resize = 40;
  EXPECT_EQ(resize(), 40);
  options.resize = 0;
  carried.description.resize = 16;  // of smaller images
  EXPECT_EQ(resize(), 36);
}

TEST(Train, RefusesRanksThatReadOtherImages) {
  const tests::Scratch scratch;
  TrainOptions options = tiny_run(160, 1);
  options.nodes = 2;
  options.run_dir = scratch / "run";
  comm::run_ranks(shape_of(options), [&](comm::Hierarchy& ranks) {
    TrainOptions own = options;
    own.data.samples += ranks.layout.rank;
    EXPECT_THAT(tests::message([&] { train(own, ranks, kConfig); }),
                HasSubstr("`dataset` synthetic: rank 1 sees other images there than rank 0"));
  });
}

class RememberedImages : public testing::Test {
 protected:
  static data::Datasets sets_with(const data::Dataset& training) { return {.train = training, .test = training}; }
  static void remember(const data::Dataset& training, std::optional<int> node, Checkpoint& checkpoint) {
    remember_images(Checksums(sets_with(training)), node, checkpoint);
  }
  static void expect(const data::Dataset& training, std::optional<int> node, const Checkpoint& checkpoint) {
    const data::Datasets sets = sets_with(training);
    expect_remembered_images(sets, Checksums(sets), node, checkpoint);
  }
  static void expect_refused(const data::Dataset& training, std::optional<int> node, const Checkpoint& checkpoint) {
    EXPECT_THAT([&] { expect(training, node, checkpoint); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("the images are not those with which the run began")));
  }

  const tests::Scratch scratch_;
  const data::Dataset images_ = images_in(scratch_ / "one", "0.jpg"), others_ = images_in(scratch_ / "two", "1.jpg");
  Checkpoint checkpoint_;
};

TEST_F(RememberedImages, AreToldToANodeThatJoins) {
  remember(images_, std::nullopt, checkpoint_);
  const auto node = comm::make_solo("node");
  const Handover taken = take_over(to_bytes({checkpoint_, "runs/one"}, kConfig, *node), kConfig, *node);
  EXPECT_NO_THROW(expect(images_in(scratch_ / "copy", "0.jpg"), std::nullopt, taken.checkpoint));
  expect_refused(others_, std::nullopt, taken.checkpoint);
}

TEST_F(RememberedImages, OfANodeAreNotAskedForOfAnother) {
  remember(images_, 0, checkpoint_);
  EXPECT_NO_THROW(expect(images_, 0, checkpoint_));
  EXPECT_NO_THROW(expect(others_, 1, checkpoint_));
  expect_refused(others_, 0, checkpoint_);
  expect_refused(images_, std::nullopt, checkpoint_);  // one set for all, which is another length
}

TEST_F(RememberedImages, InMemoryAreTold) {
  data::Dataset set = data::make_synthetic(10, 1).train;
  remember(set, std::nullopt, checkpoint_);
  EXPECT_NO_THROW(expect(set, std::nullopt, checkpoint_));
  set.images = set.images.clone();
  set.images[0].add_(1);
  expect_refused(set, std::nullopt, checkpoint_);
}

TEST_F(RememberedImages, ToTestOnAreTold) {
  remember(images_, std::nullopt, checkpoint_);
  const data::Datasets sets{.train = images_, .test = others_};
  EXPECT_THAT([&] { expect_remembered_images(sets, Checksums(sets), std::nullopt, checkpoint_); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("test images of ")));
}

TEST_F(RememberedImages, MayBeAmongTheTensorsOfARank) {
  checkpoint_.rank.insert(kImagesChecksum, at::tensor({data::checksum(images_)}, at::kLong));
  EXPECT_NO_THROW(expect(images_, 0, checkpoint_));
  expect_refused(others_, 0, checkpoint_);
}

TEST(Train, GoesOnWithTheNumbersOfTheProductItStartsFrom) {
  const tests::Scratch scratch;
  TrainOptions options = tiny_run(80, 1);
  options.run_dir = scratch / "first";
  run_to_end(options);
  const json first = json::parse(tests::text_of(scratch / "first/summary.json"));
  const data::Dataset own = data::load_datasets(options.data).train;
  EXPECT_EQ(first["normalization"], (json{{"mean", own.mean}, {"std", own.std}}));
  EXPECT_EQ(first["classes"][0], "disc");

  options.model = scratch / "first/model.pt2";
  options.data.samples = 120;
  options.run_dir = scratch / "second";
  run_to_end(options);
  const json second = json::parse(tests::text_of(scratch / "second/summary.json"));
  EXPECT_NE(data::load_datasets(options.data).train.mean, own.mean);
  EXPECT_EQ(second["normalization"], first["normalization"]);
  EXPECT_EQ(carried_description(scratch / "second/model.pt2", "")->description.mean, own.mean);
}

}  // namespace
}  // namespace prunex::train
