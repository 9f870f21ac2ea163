// Runs whose nodes have images of their own.
#include "prunex/train/images/division.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <stdexcept>

#include "prunex/io/safetensors.h"
#include "prunex/train/evaluate.h"
#include "prunex/train/prepare.h"
#include "prunex/train/pruning/evidence.h"
#include "prunex/train/trainer.h"
#include "tests/scratch.h"
#include "tests/texts.h"
#include "tests/train/small_network.h"
#include "tests/train/whole_runs.h"

namespace prunex::train {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
using tests::text_of;

TrainOptions divided(const std::string& partition) {
  TrainOptions options = tiny_run(200, 4);
  options.strategy = "local_sgd";
  options.nodes = 2;
  options.norm = models::Norm::kGroup;
  options.partition = data::parse_partition(partition).value();
  return options;
}

// Class accuracies 1/2, 1 and, untested, none: (3/2 + 1) / 4, (0 + 2) / 2, and nothing.
TEST(AccuracyByNode, WeighsClassesAsTheNodeHasThem) {
  const Division division{"classes:2", {}, {{3, 1, 6}, {0, 2, 0}, {0, 0, 5}}};
  const Evaluation test{.correct_by_class = {1, 3, 0}, .images_by_class = {2, 3, 0}};
  EXPECT_THAT(accuracy_by_node(division, test), ElementsAre(0.625, 1.0, 0.0));
}

TEST(DividedRuns, RecordClassesAndAccuraciesOfNodes) {
  const tests::Scratch scratch;
  TrainOptions options = divided("classes:5");
  options.run_dir = scratch / "run";
  options.strategy = "hsadmm";
  const Summary summary = run_to_end(options);
  const auto json = nlohmann::json::parse(text_of(options.run_dir + "/summary.json"));
  EXPECT_EQ(json["partition"]["rule"], "classes:5");
  const auto counts = json["partition"]["class_counts"].get<std::vector<std::vector<int64_t>>>();
  EXPECT_THAT(counts[0], ElementsAre(20, 20, 20, 20, 20, 0, 0, 0, 0, 0));
  EXPECT_THAT(counts[1], ElementsAre(0, 0, 0, 0, 0, 20, 20, 20, 20, 20));
  // the shipped network on the classes of a node, which the test set has equally many of
  const program::Model product = read_product(options.run_dir);
  const data::Dataset test = data::load_datasets(options.data).test;
  for (int64_t node = 0; node < 2; ++node) {
    const at::Tensor own = test.labels.div(5, "floor").eq(node).nonzero().flatten();
    data::Dataset part = test;
    part.images = test.images.index_select(0, own);
    part.labels = test.labels.index_select(0, own);
    EXPECT_NEAR(json["accuracy_by_node"][node], evaluate(product.program, product.weights, part).accuracy, 0.026);
  }
  EXPECT_NEAR(json["accuracy_by_node"][0].get<double>() + json["accuracy_by_node"][1].get<double>(),
              2 * summary.accuracy, 1e-12);
}

TEST(DividedRuns, WithoutADivisionRecordNone) {
  const tests::Scratch scratch;
  TrainOptions options = divided("iid");
  options.exchanges = 1;
  options.run_dir = scratch / "run";
  run_to_end(options);
  EXPECT_THAT(text_of(options.run_dir + "/summary.json"), testing::Not(HasSubstr("partition")));
}

// Nodes of different sizes walk through their images at different paces: 150 steps of 8 pass every epoch's end.
TEST(DividedRuns, GoOnToTheBit) {
  const tests::Scratch scratch;
  TrainOptions options = divided("dirichlet:0.5");
  options.exchanges = 6;
  options.local_steps = 5;
  options.checkpoint_every = 3;
  options.run_dir = scratch / "whole";
  run_to_end(options);
  std::filesystem::copy(scratch / "whole", scratch / "resumed", std::filesystem::copy_options::recursive);
  std::filesystem::remove(scratch / "resumed/model.safetensors");
  options.run_dir.clear();
  options.resume = scratch / "resumed";
  options.resume_exchange = 3;
  run_to_end(options);
  EXPECT_EQ(text_of(scratch / "whole/model.safetensors"), text_of(scratch / "resumed/model.safetensors"));
  EXPECT_EQ(lines_without_seconds(scratch / "whole"), lines_without_seconds(scratch / "resumed"));
}

TEST(DividedRuns, SayAtTheStartWhatNodesHave) {
  EXPECT_THAT(prepare(divided("classes:5")).remarks,
              Contains("partition classes:5: node 0 has 100 images of 5 classes, node 1 has 100 images of 5 classes"));
  TrainOptions options = divided("classes:2");
  options.nodes = 5;
  EXPECT_THAT(prepare(options).remarks,
              Contains("partition classes:2: 5 nodes have 40 to 40 images of 2 to 2 classes"));
}

TEST(DividedRuns, AreRefusedWhereANodeHasTooFewImagesForAStep) {
  TrainOptions options = divided("classes:5");
  options.ranks_per_node = {2, 1};
  options.batch_size = 51;
  EXPECT_THAT(
      [&] { prepare(options); },
      ThrowsMessage<std::invalid_argument>(AllOf(
          HasSubstr("`partition` classes:5: node 0 has 100 images, wanted 102 or more"), HasSubstr("`batch_size`"))));
  options.ranks_per_node = {1, 1};
  EXPECT_NO_THROW(prepare(options));
}

/// CIFAR-10's layout: records of a label and the pixels.
void write_cifar(const std::string& folder, const data::Dataset& set, const std::vector<int64_t>& images, int files,
                 const std::string& name) {
  std::filesystem::create_directories(folder);
  const at::Tensor pixels = set.images.contiguous();
  for (int file = 0; file < files; ++file) {
    std::ofstream out(folder + "/" + name + (files > 1 ? std::to_string(file + 1) : "") + ".bin", std::ios::binary);
    for (size_t i = images.size() * file / files; i < images.size() * (file + 1) / files; ++i) {
      out.put(static_cast<char>(set.labels[images[i]].item<int64_t>()));
      out.write(static_cast<const char*>(pixels[images[i]].const_data_ptr()), 3072);
    }
  }
}

std::vector<int64_t> first_numbers(int64_t count) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

/// `all` and, as `partition` divides it, `0` and `1`: 200 images of the synthetic set, and 40 to test on.
class FilesByNode : public testing::Test {
 protected:
  FilesByNode() {
    const data::Datasets sets = data::load_datasets({.samples = 200});
    const auto parts = data::divide(sets.train, options_.partition, 2, options_.seed);
    write("all", sets, first_numbers(200));
    for (int node = 0; node < 2; ++node) write(std::to_string(node), sets, parts[node]);
    options_.data.dataset = "cifar10";
    options_.ranks_per_node = {2, 1};
  }
  void write(const std::string& folder, const data::Datasets& sets, const std::vector<int64_t>& images) {
    write_cifar(scratch_ / folder, sets.train, images, 5, "data_batch_");
    write_cifar(scratch_ / folder, sets.test, first_numbers(sets.test.size()), 1, "test_batch");
  }
  Summary run(const std::string& data_dir, const std::string& directory) {
    options_.data.data_dir = scratch_ / data_dir;
    options_.run_dir = scratch_ / directory;
    return run_to_end(options_);
  }

  const tests::Scratch scratch_;
  TrainOptions options_ = divided("dirichlet:1");
};

TEST_F(FilesByNode, TrainAsThoughOneSetHadBeenDivided) {
  const Summary of_one = run("all", "of-one");
  options_.partition = {};
  const Summary of_files = run("{node}", "of-files");
  EXPECT_EQ(text_of(scratch_ / "of-one/model.safetensors"), text_of(scratch_ / "of-files/model.safetensors"));
  EXPECT_EQ(lines_without_seconds(scratch_ / "of-one"), lines_without_seconds(scratch_ / "of-files"));
  ASSERT_TRUE(of_one.partition && of_files.partition);
  EXPECT_EQ(of_one.partition->class_counts, of_files.partition->class_counts);
  EXPECT_EQ(of_one.partition->accuracy_by_node, of_files.partition->accuracy_by_node);
  EXPECT_EQ(of_files.partition->rule, "files by node");
  EXPECT_EQ(check(options_).training_images, 200);
}

// Batch norm's statistics come from as many images of every rank's node.
TEST_F(FilesByNode, ShipWhatWasMeasuredUnderBatchNorm) {
  options_.partition = {};
  options_.norm = models::Norm::kBatch;
  const Summary summary = run("{node}", "run");
  EXPECT_NEAR(summary.accuracy, summary.accuracy_compact, 2e-4);
}

/// Of two nodes with folders of their own; each holds four files that nobody reads.
TrainOptions of_folders(const tests::Scratch& scratch, const std::vector<std::string>& places) {
  for (const auto& place : places) {
    std::filesystem::create_directories(scratch / place);
    for (int i = 0; i < 4; ++i) std::ofstream(scratch / (place + fmt::format("/{}.png", i))) << "image";
  }
  TrainOptions options;
  describe(options).find("dataset")->set(scratch / "{node}");
  options.data.test = scratch / "val";
  options.nodes = 2;
  options.batch_size = 2;
  return options;
}

TEST(FoldersByNode, AreLabelledByTheClassesOfAllNodes) {
  const tests::Scratch scratch;
  const std::vector<std::string> classes{"ant", "bee", "cow"};
  const TrainOptions options = of_folders(
      scratch, {"0/train/ant", "0/train/bee", "1/train/bee", "1/train/cow", "val/ant", "val/bee", "val/cow"});
  const std::vector<std::vector<int64_t>> counts{{4, 4, 0}, {0, 4, 4}};
  const NodeFiles files = load_by_node(options, std::nullopt, nullptr);
  EXPECT_EQ(files.images.description.classes, classes);
  EXPECT_EQ(files.division.class_counts, counts);
  const at::Tensor some = evidence_images(files.images.sets.train, 4).labels;
  EXPECT_LT(some.min().item<int64_t>(), some.max().item<int64_t>()) << "of all classes, which are listed one by one";
  comm::run_ranks(comm::Layout::even(2, 1), [&](comm::Hierarchy& ranks) {
    const NodeFiles own = load_by_node(options, std::nullopt, &ranks);
    EXPECT_EQ(own.images.description.classes, classes);
    EXPECT_EQ(own.division.class_counts, counts);
    EXPECT_EQ(own.images.sets.train.labels.max().item<int64_t>(), ranks.layout.rank == 0 ? 1 : 2);
  });
}

TEST(FoldersByNode, ThatAreNumbersAreLabelsOfANetworkWithoutNames) {
  const tests::Scratch scratch;
  const TrainOptions options = of_folders(scratch, {"0/train/2", "1/train/10", "val/2", "val/10"});
  const Carried carried{{.mean = {0.1, 0.2, 0.3}, .std = {0.5, 0.6, 0.7}, .classes = {}}, "net.pt2"};
  const NodeFiles files = load_by_node(options, carried, nullptr);
  EXPECT_EQ(files.images.sets.train.classes, 11);
  EXPECT_EQ(files.images.sets.train.labels.max().item<int64_t>(), 2);
  EXPECT_EQ(files.images.sets.test.labels.max().item<int64_t>(), 10);
}

/// Labels 0 and 1 on node 0, 0 to 4 on node 1 and to test on.
TEST(ImageFilesByNode, HaveAsManyClassesAsAnyNodeHas) {
  const tests::Scratch scratch;
  const auto file = [&](const std::string& name, int64_t classes) {
    TensorDict tensors;
    tensors.insert("images", at::full({20, 3, 8, 8}, 100, at::kByte));
    tensors.insert("labels", at::arange(20, at::kLong).remainder(classes));
    io::write_safetensors(scratch / name, tensors, {});
  };
  file("0.safetensors", 2);
  file("1.safetensors", 5);
  file("test.safetensors", 5);
  TrainOptions options;
  options.data.dataset = scratch / "{node}.safetensors";
  options.data.test = scratch / "test.safetensors";
  options.nodes = 2;
  options.batch_size = 4;
  const std::vector<std::vector<int64_t>> counts{{10, 10, 0, 0, 0}, {4, 4, 4, 4, 4}};
  EXPECT_EQ(load_by_node(options, std::nullopt, nullptr).division.class_counts, counts);
  comm::run_ranks(comm::Layout::even(2, 1), [&](comm::Hierarchy& ranks) {
    const NodeFiles own = load_by_node(options, std::nullopt, &ranks);
    EXPECT_EQ(own.division.class_counts, counts);
    EXPECT_EQ(own.images.sets.train.classes, 5);
    EXPECT_EQ(own.images.sets.test.classes, 5);
  });
  file("test.safetensors", 6);
  EXPECT_THAT([&] { load_by_node(options, std::nullopt, nullptr); },
              ThrowsMessage<std::invalid_argument>(
                  HasSubstr("labels of the test images go up to 5, those that nodes train on to 4")));
  const auto images = at::full({2, 3, 8, 8}, 100, at::kByte);
  TensorDict mistaken;
  mistaken.insert("images", images);
  mistaken.insert("labels", at::tensor({0, 100'000}, at::kLong));
  io::write_safetensors(scratch / "1.safetensors", mistaken, {});
  EXPECT_THAT(
      [&] { load_by_node(options, std::nullopt, nullptr); },
      ThrowsMessage<std::invalid_argument>(HasSubstr("labels go up to 100000, more classes than the 22 images")));
}

/// Two ranks of node 0 share its 30, the one of node 1 has 20.
TEST_F(FilesByNode, ScoreTheHeldOutImagesOfAllNodes) {
  const auto model = small_network();
  const std::vector<data::Dataset> sets{noise_images(30), noise_images(20)};
  double right = 0;
  for (const auto& set : sets) {
    right += evaluate(model.program, model.weights, set).accuracy * static_cast<double>(set.size());
  }
  comm::run_ranks(comm::Layout{.node_sizes = {2, 1}}, [&](comm::Hierarchy& ranks) {
    const auto& own = sets[static_cast<size_t>(ranks.layout.node())];
    const Evaluation all = evaluate(model.program, model.weights, own, *ranks.world, ranks.node.get());
    EXPECT_NEAR(all.accuracy, right / 50, 1e-12);
  });
  options_.partition = {};
  options_.data.validation = 20;
  options_.data.data_dir = scratch_ / "{node}";
  EXPECT_EQ(check(options_).validation_images, 40);
}

TEST_F(FilesByNode, AreRefusedWhereNodesDoNotFitTogether) {
  options_.data.data_dir = scratch_ / "{node}";
  const auto expect_refused = [&](const std::string& why) {
    EXPECT_THAT([&] { prepare(options_); }, ThrowsMessage<std::invalid_argument>(HasSubstr(why)));
    EXPECT_THAT([&] { run("{node}", "run"); }, testing::Throws<std::exception>());
  };
  expect_refused("`partition`: got dirichlet:1 besides `data_dir` " + options_.data.data_dir);
  options_.partition = {};
  options_.batch_size = 66;
  expect_refused("{node}: node ");
  options_.batch_size = 8;
  std::filesystem::copy_file(scratch_ / "0/data_batch_1.bin", scratch_ / "1/test_batch.bin",
                             std::filesystem::copy_options::overwrite_existing);
  expect_refused("{node}: node 1 has other test images than node 0: wanted the same");
}

}  // namespace
}  // namespace prunex::train
