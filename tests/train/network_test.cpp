// The network of a run: weights from files, and refusals of what does not fit.
#include "prunex/train/network.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>

#include "prunex/io/safetensors.h"
#include "prunex/program/pt2.h"
#include "tests/scratch.h"
#include "tests/texts.h"
#include "tests/train/small_network.h"

namespace prunex::train {
namespace {

using program::Builder;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

TensorDict all_of(const Weights& weights) {
  TensorDict all = weights.params;
  for (const auto& buffer : weights.buffers) all.insert(buffer.key(), buffer.value());
  return all;
}

class LoadWeights : public testing::Test {
 protected:
  /// Writes the network's own tensors, all times 2, after `change`.
  void write(const std::function<void(TensorDict&)>& change = [](TensorDict&) {}) {
    TensorDict doubled;
    for (const auto& item : all_of(model_.weights)) doubled.insert(item.key(), item.value().detach() * 2);
    change(doubled);
    io::write_safetensors(path_, doubled);
  }
  static TensorDict without(const TensorDict& tensors, const std::string& name) {
    TensorDict others;
    for (const auto& item : tensors) {
      if (item.key() != name) others.insert(item.key(), item.value());
    }
    return others;
  }
  template <class Error>
  void refused(const std::string& why) {
    EXPECT_THAT([&] { load_weights(model_.weights, path_); },
                ThrowsMessage<Error>(AllOf(HasSubstr(path_), HasSubstr(why))));
  }

  const tests::Scratch scratch_;
  const std::string path_ = scratch_ / "weights.safetensors";
  program::Model model_ = small_network();
};

TEST_F(LoadWeights, CopiesEveryTensorByName) {
  const program::Model before = small_network();
  write();
  load_weights(model_.weights, path_);
  for (const auto& item : all_of(before.weights)) {
    EXPECT_TRUE(at::equal(all_of(model_.weights)[item.key()], item.value() * 2)) << item.key();
  }
}

// Files of tied weights have one name of theirs, which need not be the graph's, or all.
TEST_F(LoadWeights, KnowsTiedWeightsByEachOfTheirNames) {
  at::NoGradGuard no_grad;
  const std::map<std::string, std::string> tied{{"head.weight", "fc.weight"}};
  const at::Tensor before = model_.weights.params["fc.weight"].clone();
  for (const bool both : {false, true}) {
    write([&](TensorDict& tensors) {
      tensors.insert("head.weight", tensors["fc.weight"].clone());
      if (!both) tensors = without(tensors, "fc.weight");
    });
    load_weights(model_.weights, path_, tied);
    EXPECT_FALSE(at::equal(model_.weights.params["fc.weight"], before)) << both;
    model_.weights.params["fc.weight"].copy_(before);
  }
  write([&](TensorDict& tensors) { tensors.insert("head.weight", tensors["fc.weight"] + 1); });
  EXPECT_THAT([&] { load_weights(model_.weights, path_, tied); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("'fc.weight' and 'head.weight' differ")));
}

TEST_F(LoadWeights, RefusesAFileWithoutATensor) {
  for (const char* name : {"conv2.weight", "bn1.running_var"}) {
    write([&](TensorDict& tensors) { tensors = without(tensors, name); });
    refused<std::runtime_error>(name);
  }
}

TEST_F(LoadWeights, RefusesATensorOfAnotherShape) {
  write([](TensorDict& tensors) { tensors["fc.weight"] = at::zeros({kClasses, 3}); });
  refused<std::invalid_argument>("'fc.weight' has shape [5, 3], the model wants [5, 4]");
}

TEST_F(LoadWeights, RefusesATensorTheModelDoesNotHave) {
  write([](TensorDict& tensors) { tensors.insert("fc2.weight", at::zeros({2})); });
  refused<std::invalid_argument>("no tensor 'fc2.weight'");
}

TEST_F(LoadWeights, RefusesWhatIsNoFile) {
  refused<std::runtime_error>("");
}

void refused(const program::Model& model, const data::Dataset& dataset, const std::string& why) {
  EXPECT_THAT([&] { check_fits(model.program.graph(), dataset, "`model` net.pt2"); },
              ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("`model` net.pt2: "), HasSubstr(why))));
}

TEST(CheckFits, AcceptsImagesOfItsSizeAndNoMoreClassesThanLogits) {
  auto images = noise_images(4);
  const auto model = small_network();
  EXPECT_NO_THROW(check_fits(model.program.graph(), images, ""));
  images.classes = kClasses - 1;
  EXPECT_NO_THROW(check_fits(model.program.graph(), images, ""));
}

TEST(CheckFits, RefusesOtherImagesAndMoreClasses) {
  auto images = noise_images(4);
  images.images = at::zeros({4, 1, kSide, kSide}, at::kByte);
  refused(small_network(), images, "its input is [batch, 3, 8, 8], the images of noise are [batch, 1, 8, 8]");
  images = noise_images(4);
  images.classes = kClasses + 1;
  refused(small_network(), images, "its output is [batch, 5], noise has 6 classes");
}

TEST(CheckFits, RefusesNetworksThatClassifyNoImages) {
  const auto images = noise_images(4);
  Builder two(1);
  const auto a = two.input("a", {3, kSide, kSide}), b = two.input("b", {3, kSide, kSide});
  const auto sum = two.linear("fc", two.flatten(two.add(a, b)), {.out = kClasses});
  refused(std::move(two).finish(sum), images, "takes 2 inputs");
  Builder rows(1);
  const auto row = rows.linear("fc", rows.input("x", {3 * kSide * kSide}), {.out = kClasses});
  refused(std::move(rows).finish(row), images, "its input is [batch, 192]");
  Builder maps(1);
  const auto map = maps.conv2d("conv", maps.input("x", {3, kSide, kSide}), {.out = kClasses});
  refused(std::move(maps).finish(map), images, "its output is [batch, 5, 8, 8]");
}

TEST(LoadNetwork, MakesTrainableLeavesInChannelsLast) {
  const tests::Scratch scratch;
  TrainOptions options;
  options.model = scratch / "net.pt2";
  const auto saved = small_network();
  program::write_pt2(options.model, saved);
  const auto model = load_network(options, noise_images(4)).model;
  for (const auto& item : model.weights.params) {
    const at::Tensor& theta = item.value();
    EXPECT_TRUE(theta.requires_grad() && theta.is_leaf()) << item.key();
    EXPECT_TRUE(theta.dim() != 4 || theta.is_contiguous(at::MemoryFormat::ChannelsLast)) << item.key();
    EXPECT_TRUE(at::equal(theta.detach(), saved.weights.params[item.key()])) << item.key();  // its own weights
  }
  for (const auto& item : model.weights.buffers) EXPECT_FALSE(item.value().requires_grad()) << item.key();
}

TEST(LoadNetwork, RefusesParametersOfOtherTypes) {
  const tests::Scratch scratch;
  TrainOptions options;
  options.model = scratch / "net.pt2";
  for (const auto type : {at::kDouble, at::kLong}) {
    program::Model model = small_network();
    program::Graph graph = model.program.graph();
    auto& theta = model.weights.params.back();
    theta.value() = theta.value().detach().to(type);
    for (auto& value : graph.values) {
      if (value.weight == theta.key()) value.dtype = type;
    }
    program::write_pt2(options.model, {program::Program(graph), model.weights});
    EXPECT_THAT([&] { load_network(options, noise_images(4)); },
                ThrowsMessage<std::invalid_argument>("`model` " + options.model + ": parameter " + theta.key() +
                                                     " is " + at::toString(type) + ", wanted Float"));
  }
}

// The shapes that a file states, as a stranger may have changed them: they say which channels belong together.
TEST(LoadNetwork, RefusesAFileThatStatesOtherShapesThanItComputes) {
  const tests::Scratch scratch;
  TrainOptions options;
  options.model = scratch / "net.pt2";
  const program::Model model = small_network();
  const auto& nodes = model.program.graph().nodes;
  int forged = 0;
  for (const program::Node& node : nodes) {
    program::Graph graph = model.program.graph();
    program::Value& value = graph.values[node.outputs[0]];
    if (value.shape.size() < 2 || node.outputs[0] == graph.outputs[0]) continue;
    value.shape[1].factor *= 2;
    program::write_pt2(options.model, {program::Program(graph), model.weights});
    EXPECT_THAT([&] { load_network(options, noise_images(4)); },
                ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr(options.model), HasSubstr(value.name))));
    ++forged;
  }
  EXPECT_GE(forged, 5);
}

TEST(LoadNetwork, BuildsANamedNetworkForTheData) {
  TrainOptions options;
  options.model = "resnet8";
  auto images = noise_images(4);
  images.images = at::zeros({4, 1, 32, 32}, at::kByte);
  const auto model = load_network(options, images).model;
  EXPECT_EQ(model.weights.params["conv1.weight"].size(1), 1);
  EXPECT_EQ(model.weights.params["fc.weight"].size(0), kClasses);
}

TEST(LoadNetwork, DrawsTheSeedsWeightsAndThenReadsThoseOfTheFile) {
  TrainOptions options;
  options.model = "resnet8";
  auto images = noise_images(4);
  images.images = at::zeros({4, 3, 32, 32}, at::kByte);
  const auto conv1 = [&] { return load_network(options, images).model.weights.params["conv1.weight"].detach(); };
  const at::Tensor first = conv1();
  EXPECT_TRUE(at::equal(conv1(), first));
  TensorDict stored;
  for (const auto& item : all_of(load_network(options, images).model.weights))
    stored.insert(item.key(), item.value().detach());
  options.seed = 1;
  EXPECT_FALSE(at::equal(conv1(), first));
  const tests::Scratch scratch;
  options.weights = scratch / "weights.safetensors";
  io::write_safetensors(options.weights, stored);
  EXPECT_TRUE(at::equal(conv1(), first));
}

/// resnet8 for grey images, and structure.json of one whose first inner group has lost every other unit.
class Widths : public testing::Test {
 protected:
  Widths() {
    options_.model = "resnet8";
    images_.images = at::zeros({4, 1, 32, 32}, at::kByte);
    const auto whole = load_network(options_, images_);
    const auto& groups = whole.analysis.removable();
    sparsity::Masks masks = sparsity::full_masks(groups);
    for (int64_t unit = 1; unit < groups[0].size; unit += 2) masks[groups[0].name][unit] = false;
    write("cut", sparsity::make_cut(groups, masks, sparsity::shapes_of(whole.model.weights)));
    write("whole", sparsity::make_cut(groups, sparsity::full_masks(groups), sparsity::shapes_of(whole.model.weights)));
  }
  void write(const std::string& name, const sparsity::Cut& cut) {
    std::filesystem::create_directories(scratch_ / name);
    write_structure(scratch_ / name, {"resnet8", {1, 1, 32, 32}, cut});
  }
  void refused(const std::string& why) {
    EXPECT_THAT([&] { load_network(options_, images_); },
                ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("`widths` " + options_.widths), HasSubstr(why))));
  }

  const tests::Scratch scratch_;
  TrainOptions options_;
  data::Dataset images_ = noise_images(4);
};

TEST_F(Widths, AreThoseOfTheRunWithFreshWeights) {
  const Network whole = load_network(options_, images_);
  options_.widths = scratch_ / "cut/structure.json";
  const auto narrow = load_network(options_, images_);
  const auto structure = parse_structure(tests::text_of(options_.widths));
  for (const auto& theta : narrow.model.weights.params) {
    const auto& cut = structure.cut.tensors.at(theta.key());
    EXPECT_EQ(theta.value().sizes(), at::IntArrayRef(sparsity::shape_after(cut))) << theta.key();
    at::Tensor expected = sparsity::slice(whole.model.weights.params[theta.key()].detach(), cut, theta.key());
    if (expected.dim() == 4) expected *= std::sqrt(static_cast<double>(cut.shape[0]) / expected.size(0));
    EXPECT_TRUE(at::allclose(theta.value().detach(), expected)) << theta.key();
    EXPECT_TRUE(theta.value().is_leaf() && theta.value().requires_grad()) << theta.key();
  }
  const auto parameters = [](const Network& network) {
    return size_of(network.model.program.graph(), network.model.weights).parameters;
  };
  EXPECT_LT(parameters(narrow), parameters(whole));
}

TEST_F(Widths, OfAnotherNetworkOrOfAWholeOneAreRefused) {
  options_.widths = scratch_ / "whole/structure.json";
  refused("nothing was cut there");
  options_.widths = scratch_ / "cut/structure.json";
  options_.width = 2;
  refused("of another network: ");
  options_.widths = scratch_ / "none.json";
  refused("");
  std::ofstream(scratch_ / "text.json") << "{}";
  options_.widths = scratch_ / "text.json";
  refused("no structure of a pruned network");
}

TEST(LoadNetwork, RefusesUnknownNames) {
  TrainOptions options;
  options.model = "resnet9";
  EXPECT_THAT([&] { load_network(options, noise_images(4)); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("resnet9")));
}

}  // namespace
}  // namespace prunex::train
