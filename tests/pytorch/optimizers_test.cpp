// Every optimizer against torch.optim over 100 steps.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "prunex/io/safetensors.h"
#include "prunex/train/optimizer.h"
#include "tests/larger.h"
#include "tests/python.h"
#include "tests/pytorch/load_tensors.h"
#include "tests/scratch.h"

namespace prunex::train {
namespace {

constexpr int64_t kSteps = 100;

const std::vector<std::pair<const char*, Optimizer>> kRules{{"sgd", Optimizer::kSgd},
                                                            {"nesterov", Optimizer::kNesterov},
                                                            {"adamw", Optimizer::kAdamW},
                                                            {"lamb", Optimizer::kLamb},
                                                            {"muon", Optimizer::kMuon}};

OptimizerOptions options_of_rule(Optimizer rule) {
  return {.learning_rate = 0.01,
          .momentum = 0.9,
          .weight_decay = 0.02,
          .rule = rule,
          .beta1 = 0.9,
          .beta2 = 0.99,
          .eps = rule == Optimizer::kLamb ? 1e-6 : 1e-8};
}

/// A filter, a vector, matrices that are wide and tall, and the head, which is the last.
TensorDict problem() {
  auto generator = at::detail::createCPUGenerator(5);
  TensorDict file;
  const auto add = [&](const char* name, std::vector<int64_t> sizes) {
    file.insert(std::string("theta/") + name, at::randn(sizes, generator, at::kDouble));
    sizes.insert(sizes.begin(), kSteps);
    file.insert(std::string("grad/") + name, at::randn(sizes, generator, at::kDouble));
  };
  add("bias", {12});
  add("filter", {8, 6, 3, 3});
  add("wide", {10, 24});
  add("tall", {24, 10});
  add("head", {4, 12});
  return file;
}

Replica replica_of(const TensorDict& file, at::ScalarType type, Optimizer rule) {
  Replica replica;
  for (const auto& item : file) {
    if (!item.key().starts_with("theta/")) continue;
    at::Tensor theta = item.value().to(type).clone();
    if (theta.dim() == 4) theta = theta.contiguous(at::MemoryFormat::ChannelsLast);
    replica.weights.params.insert(item.key().substr(6), theta.set_requires_grad(true));
  }
  replica.optimizer = fresh_state(replica.weights.params, rule);
  return replica;
}

double largest_gap(Replica& replica, const std::map<std::string, at::Tensor>& wanted, const std::string& prefix) {
  double gap = 0;
  for (const auto& item : replica.weights.params) {
    const at::Tensor want = wanted.at(prefix + item.key()).to(at::kDouble).view(item.value().sizes());
    const at::Tensor error = (item.value().detach().to(at::kDouble) - want).abs() / want.abs().max();
    gap = tests::larger(gap, error.max().item<double>());
  }
  return gap;
}

TEST(Optimizers, AreTorchOptimsOverAHundredSteps) {
  const tests::Scratch scratch;
  const TensorDict file = problem();
  io::write_safetensors(scratch / "in.safetensors", file, {});
  PRUNEX_RUN_PYTHON("tests/pytorch/run_optimizers.py", scratch / "in.safetensors", scratch / "out.pt");
  const auto wanted = tests::load_tensors(scratch / "out.pt");
  for (const auto& [name, rule] : kRules) {
    for (const auto type : {at::kFloat, at::kDouble}) {
      Replica replica = replica_of(file, type, rule);
      for (int64_t step = 1; step <= kSteps; ++step) {
        for (auto& item : replica.weights.params) {
          item.value().mutable_grad() = file["grad/" + item.key()][step - 1].to(type);
        }
        optimizer_step(replica, strategies::LocalTerms(), options_of_rule(rule));
      }
      const char* word = type == at::kFloat ? "fp32" : "double";
      const double gap = largest_gap(replica, wanted, fmt::format("{}/{}/", name, word));
      RecordProperty(fmt::format("{}_{}", name, word), fmt::format("{:.2g}", gap));
      EXPECT_LT(gap, type == at::kFloat ? 1e-6 : 1e-12) << name << " " << word;
    }
  }
}

}  // namespace
}  // namespace prunex::train
