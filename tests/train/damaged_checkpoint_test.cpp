// Checkpoints whose tensors are not those of such a run: what resuming says of them.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "prunex/io/safetensors.h"
#include "prunex/train/trainer.h"
#include "tests/scratch.h"
#include "tests/texts.h"
#include "tests/train/whole_runs.h"

namespace prunex::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// What resuming says if `change` has been made to the tensors of a share.
std::string refusal_of(const std::function<TensorDict(const TensorDict&)>& change, const std::string& share = "rank-0",
                       const std::string& strategy = "hsadmm") {
  const tests::Scratch scratch;
  TrainOptions options = two_node_run(scratch / "run");
  options.strategy = strategy;
  options.nodes = 1;
  options.exchanges = 3;
  options.checkpoint_every = 1;
  run_to_end(options);
  const std::string file = scratch / ("run/checkpoint/2/" + share + ".safetensors");
  const auto saved = io::read_safetensors(file);
  io::write_safetensors(file, change(saved.tensors), saved.metadata);
  options.resume = options.run_dir;
  options.resume_exchange = 2;
  return tests::message([&] { run_to_end(options); });
}

/// What is said where the first tensor whose name begins so is another one.
std::string refusal_of_a(const std::string& prefix, const std::function<at::Tensor(const at::Tensor&)>& other,
                         const std::string& share = "rank-0", const std::string& strategy = "hsadmm") {
  bool found = false;
  const auto told = refusal_of(
      [&](const TensorDict& tensors) {
        TensorDict changed;
        for (const auto& item : tensors) {
          const bool this_one = !found && item.key().starts_with(prefix);
          found |= this_one;
          changed.insert(item.key(), this_one ? other(item.value()) : item.value());
        }
        return changed;
      },
      share, strategy);
  EXPECT_TRUE(found) << prefix;
  return told;
}

TEST(DamagedCheckpoint, NumbersThatDoNotFitAreNamed) {
  const auto none = [](const at::Tensor& saved) { return saved.slice(0, 0, 0).clone(); };
  const auto doubles = [](const at::Tensor& saved) { return saved.to(at::kDouble); };
  const auto whole = [](const at::Tensor& saved) { return saved.to(at::kLong); };
  const auto negative = [](const at::Tensor& saved) { return -1 - saved; };
  EXPECT_THAT(refusal_of_a("progress", none, "node-0", "hsadmm"),
              HasSubstr("run/checkpoint/2: tensor progress is [0], wanted [4]"));
  EXPECT_THAT(refusal_of_a("progress", doubles, "node-0", "ddp"),
              HasSubstr("run/checkpoint/2: tensor progress holds Double, wanted Long"));
  EXPECT_THAT(refusal_of_a("step", none, "node-0", "powersgd"), HasSubstr("tensor step is [0], wanted [1]"));
  EXPECT_THAT(refusal_of_a("step", none, "node-0", "top_k"), HasSubstr("tensor step is [0], wanted [1]"));
  EXPECT_THAT(refusal_of_a("progress", none, "node-0", "scaffold"), HasSubstr("tensor progress is [0], wanted [2]"));
  EXPECT_THAT(refusal_of_a("rho/", whole, "node-0"), HasSubstr(" holds Long, wanted Double"));
  EXPECT_THAT(refusal_of_a("rho/", none, "node-0"), HasSubstr(" is [0], wanted [2]"));
  EXPECT_THAT(refusal_of_a("mask/", none, "node-0"), HasSubstr(" is [0], wanted ["));
  EXPECT_THAT(refusal_of_a("cursor", none, "node-0"), HasSubstr("tensor cursor is [0], wanted [3]"));
  EXPECT_THAT(refusal_of_a("cursor", negative, "node-0"), HasSubstr("wanted none below 0"));
}

TEST(DamagedCheckpoint, TensorsThatDoNotFitAreNamed) {
  const auto row = [](const at::Tensor& saved) { return saved.slice(0, 0, 1).clone(); };  // it could be broadcast
  for (const std::string role : {"theta/", "u/", "momentum/"}) {
    EXPECT_THAT(refusal_of_a(role, row), AllOf(HasSubstr("run/checkpoint/2: tensor " + role), HasSubstr(" is [1, ")));
  }
}

TEST(DamagedCheckpoint, TensorsThatAreMissingAreNamed) {
  const auto told = refusal_of([](const TensorDict& tensors) {
    TensorDict less;
    for (const auto& item : tensors) {
      if (!item.key().starts_with("u/")) less.insert(item.key(), item.value());
    }
    return less;
  });
  EXPECT_THAT(told, HasSubstr("run/checkpoint/2: has no tensor u/"));
}

}  // namespace
}  // namespace prunex::train
