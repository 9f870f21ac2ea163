// Stock torchvision networks: our answers against eager PyTorch's, our files against torch.export.load.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "prunex/program/program.h"
#include "prunex/program/pt2.h"
#include "tests/python.h"
#include "tests/pytorch/load_tensors.h"
#include "tests/scratch.h"

namespace prunex::program {
namespace {

constexpr double kTolerance = 1e-5;  // relative to the largest element

void expect_close(const at::Tensor& got, const at::Tensor& wanted, const std::string& what) {
  ASSERT_EQ(got.sizes(), wanted.sizes()) << what;
  if (wanted.numel() == 0) return;
  const auto scale = wanted.abs().max().item<double>();
  EXPECT_LE((got - wanted).abs().max().item<double>(), kTolerance * scale + 1e-12) << what;
}

class Torchvision : public testing::TestWithParam<const char*> {
 protected:
  void expect_eval_output(const std::string& file) {
    c10::NoGradGuard no_grad;
    auto model = read_pt2(folder_ / file);
    const auto before = model.weights.buffers.size() ? model.weights.buffers[0].value().clone() : at::Tensor();
    const auto got = model.program.run({expected_["x"]}, model.weights, Mode::kEval);
    expect_close(got[0], expected_["eval.output"], file);
    if (before.defined()) {
      EXPECT_TRUE(at::equal(before, model.weights.buffers[0].value())) << file;
    }
  }

  void expect_training_step(const std::string& file) {
    auto model = read_pt2(folder_ / file);
    at::manual_seed(7);  // the seed of export_network.py: dropout draws the same masks
    const auto outputs = model.program.run({expected_["x"]}, model.weights, Mode::kTrain);
    auto loss = at::zeros({});
    for (const auto& output : outputs) loss = loss + output.square().mean();
    loss.backward();
    for (size_t i = 0; i < outputs.size(); ++i) {
      expect_close(outputs[i].detach(), expected_.at(fmt::format("train.output.{}", i)), file);
    }
    for (const auto& item : model.weights.params) {
      const auto grad = expected_.find("grad." + item.key());
      ASSERT_EQ(item.value().grad().defined(), grad != expected_.end()) << item.key();
      if (grad != expected_.end()) expect_close(item.value().grad(), grad->second, item.key());
    }
    for (const auto& item : model.weights.buffers) {
      expect_close(item.value(), expected_.at("buffer." + item.key()), item.key());
    }
  }

  tests::Scratch folder_;
  std::map<std::string, at::Tensor> expected_;
};

TEST_P(Torchvision, TrainsAndEvaluatesLikePyTorchAndBack) {
  at::set_num_threads(1);
  PRUNEX_RUN_PYTHON("tests/pytorch/export_network.py", GetParam(), folder_.path());
  expected_ = tests::load_tensors(folder_ / "expected.pt");
  expect_eval_output("train.pt2");
  expect_eval_output("eval.pt2");
  expect_training_step("train.pt2");

  const auto model = read_pt2(folder_ / "train.pt2");
  write_pt2(folder_ / "written_train.pt2", model);
  write_pt2(folder_ / "written_eval.pt2", {Program(in_mode(model.program.graph(), Mode::kEval)), model.weights});
  expect_eval_output("written_train.pt2");
  expect_eval_output("written_eval.pt2");
  PRUNEX_RUN_PYTHON("tests/pytorch/check_written.py", GetParam(), folder_.path());
}

INSTANTIATE_TEST_SUITE_P(Networks, Torchvision,
                         testing::Values("resnet18", "vgg16_bn", "googlenet", "shufflenet_v2_x1_0", "efficientnet_b0",
                                         "swin_t"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace prunex::program
