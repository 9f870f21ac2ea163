// Built-in models against torchvision's with the same weights.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "prunex/models/models.h"
#include "prunex/program/pt2.h"
#include "tests/python.h"
#include "tests/pytorch/load_tensors.h"
#include "tests/scratch.h"

namespace prunex::models {
namespace {

constexpr double kTolerance = 1e-4;  // of gradients through 150 layers, relative to the largest element

/// As reference.py thins out.
at::Tensor thin(const at::Tensor& tensor) {
  return tensor.detach().flatten().slice(0, 0, tensor.numel(), std::max<int64_t>(1, tensor.numel() / 1000));
}

void expect_close(const at::Tensor& got, const at::Tensor& wanted, const std::string& what) {
  ASSERT_EQ(got.sizes(), wanted.sizes()) << what;
  const double scale = wanted.abs().max().item<double>();
  EXPECT_LE((got - wanted).abs().max().item<double>(), kTolerance * scale + 1e-7) << what;
}

struct Case {
  const char* name;
  int64_t size;
  Norm norm = Norm::kBatch;
};

class BuiltIn : public testing::TestWithParam<Case> {};

TEST_P(BuiltIn, EqualsPyTorchsNamesOutputsAndGradients) {
  at::set_num_threads(1);
  const auto& [name, size, norm] = GetParam();
  const tests::Scratch folder;
  program::Model model = make_model(name, {.height = size, .width = size, .norm = norm, .seed = 3});
  program::write_pt2(folder / "model.pt2", model);
  PRUNEX_RUN_PYTHON("tests/models/reference.py", name, norm == Norm::kGroup ? "group" : "batch", folder.path());
  const std::map<std::string, at::Tensor> expected = tests::load_tensors(folder / "expected.pt");
  const at::Tensor& x = expected.at("x");

  expect_close(model.program.run({x}, model.weights, program::Mode::kEval)[0].detach(), expected.at("eval"), "eval");
  at::manual_seed(7);  // dropout draws the same masks
  const at::Tensor logits = model.program.run({x}, model.weights, program::Mode::kTrain)[0];
  logits.square().mean().backward();
  expect_close(logits.detach(), expected.at("train"), "train");
  for (const auto& item : model.weights.params) {
    expect_close(thin(item.value().grad()), expected.at("grad." + item.key()), item.key());
  }
  for (const auto& item : model.weights.buffers) {
    if (item.key().ends_with("num_batches_tracked")) continue;
    expect_close(thin(item.value()), expected.at("buffer." + item.key()), item.key());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, BuiltIn,
                         testing::Values(Case{"resnet8", 32}, Case{"resnet20", 32}, Case{"resnet56", 32},
                                         Case{"resnet18", 32}, Case{"resnet18", 64}, Case{"resnet50", 64},
                                         Case{"resnet152", 64}, Case{"wide_resnet50_2", 64}, Case{"vgg16_bn", 32},
                                         Case{"vgg19_bn", 32}, Case{"resnet20", 32, Norm::kGroup},
                                         Case{"resnet50", 64, Norm::kGroup}, Case{"vgg16_bn", 32, Norm::kGroup}),
                         [](const auto& info) {
                           return std::string(info.param.name) + "_" + std::to_string(info.param.size) +
                                  (info.param.norm == Norm::kGroup ? "_group_norm" : "");
                         });

}  // namespace
}  // namespace prunex::models
