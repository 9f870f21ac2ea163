// What all optimizers share: local terms, masks, clipping, state. Their numbers are in tests/pytorch.
#include "prunex/train/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "prunex/sparsity/cut.h"
#include "tests/groups.h"

namespace prunex::train {
namespace {

using strategies::LocalTerms;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
using tests::random_tensors;

constexpr at::MemoryFormat kFormat = at::MemoryFormat::ChannelsLast;

class OfEveryRule : public testing::TestWithParam<Optimizer> {
 protected:
  static OptimizerOptions of_rule() {
    return {.learning_rate = 0.05, .momentum = 0.9, .weight_decay = 0.1, .rule = GetParam()};
  }

  static Replica replica_of(const TensorDict& theta) {
    Replica replica;
    for (const auto& item : theta) replica.weights.params.insert(item.key(), item.value().clone().requires_grad_());
    replica.optimizer = fresh_state(replica.weights.params, GetParam());
    return replica;
  }
  static Replica make_replica() { return replica_of(random_tensors(at::kDouble, kFormat, 1)); }

  static void set_gradients(Replica& replica, const TensorDict& gradients) {
    for (auto& item : replica.weights.params) item.value().mutable_grad() = gradients[item.key()].clone();
  }

  static void expect_close(const TensorDict& ours, const TensorDict& theirs, double tolerance) {
    ASSERT_EQ(ours.size(), theirs.size());
    for (const auto& item : ours) {
      EXPECT_TRUE(at::allclose(item.value(), theirs[item.key()], tolerance, tolerance)) << item.key();
    }
  }
  static void expect_close(const Replica& ours, const Replica& theirs, double tolerance) {
    expect_close(ours.weights.params, theirs.weights.params, tolerance);
    ASSERT_EQ(ours.optimizer.size(), theirs.optimizer.size());
    for (const auto& state : ours.optimizer) expect_close(state.value(), theirs.optimizer[state.key()], tolerance);
  }
};

// Matrices by themselves decay, vectors by themselves do not.
TEST_P(OfEveryRule, VectorsMayBeSparedByWeightDecay) {
  TensorDict matrices, vectors;
  for (const auto& item : random_tensors(at::kDouble, kFormat, 1)) {
    (item.value().dim() > 1 ? matrices : vectors).insert(item.key(), item.value());
  }
  ASSERT_FALSE(vectors.is_empty());
  Replica all = make_replica(), decaying = replica_of(matrices), spared = replica_of(vectors);
  OptimizerOptions options = of_rule(), without = options;
  options.decay_vectors = false;
  without.weight_decay = 0;
  for (int64_t step = 1; step <= 3; ++step) {
    const TensorDict gradients = random_tensors(at::kDouble, kFormat, 10 + step);
    for (Replica* replica : {&all, &decaying, &spared}) set_gradients(*replica, gradients);
    optimizer_step(all, LocalTerms(), options);
    optimizer_step(decaying, LocalTerms(), of_rule());
    optimizer_step(spared, LocalTerms(), without);
  }
  for (const auto& item : all.weights.params) {
    const Replica& alone = item.value().dim() > 1 ? decaying : spared;
    EXPECT_TRUE(at::equal(item.value(), alone.weights.params[item.key()])) << item.key();
  }
}

TEST_P(OfEveryRule, TheAnchorPullsTheGradientOfSgdAndThetaOfTheOthers) {
  Replica ours = make_replica(), theirs = make_replica();
  const TensorDict anchors = random_tensors(at::kDouble, kFormat, 2);
  LocalTerms terms;
  for (const char* name : {"first", "linear", "free"}) {
    terms.anchor.insert(name, anchors[name]);
    terms.rho1.push_back(0.3 + 0.1 * static_cast<double>(terms.rho1.size()));
  }
  for (int64_t step = 1; step <= 3; ++step) {
    const TensorDict gradients = random_tensors(at::kDouble, kFormat, 10 + step);
    set_gradients(ours, gradients);
    set_gradients(theirs, gradients);
    for (size_t i = 0; i < terms.anchor.size(); ++i) {
      at::NoGradGuard no_grad;
      at::Tensor& theta = theirs.weights.params[terms.anchor.keys()[i]];
      const at::Tensor pull = terms.rho1[i] * (theta - terms.anchor[i].value());
      const bool sgd = GetParam() == Optimizer::kSgd || GetParam() == Optimizer::kNesterov;
      (sgd ? theta.mutable_grad() : theta).add_(pull, sgd ? 1 : -of_rule().learning_rate);
    }
    optimizer_step(ours, terms, of_rule());
    optimizer_step(theirs, LocalTerms(), of_rule());
  }
  expect_close(ours, theirs, 1e-13);
}

TEST_P(OfEveryRule, MasksHoldThetaAndAllStates) {
  Replica replica = make_replica();  // theta is not on the masks yet
  LocalTerms terms;
  for (const auto& item : random_tensors(at::kDouble, kFormat, 3)) {
    terms.masks.insert(item.key(), item.value().gt(0).to(at::kDouble));
  }
  for (auto& state : replica.optimizer) {
    for (auto& item : state.value()) item.value().fill_(1);
  }
  set_gradients(replica, random_tensors(at::kDouble, kFormat, 10));
  optimizer_step(replica, terms, of_rule());
  std::vector<TensorDict> all{replica.weights.params};
  for (const auto& state : replica.optimizer) all.push_back(state.value());
  for (const auto& tensors : all) {
    for (const auto& item : tensors) {
      const at::Tensor dead = terms.masks[item.key()].eq(0);
      EXPECT_EQ(item.value().detach().masked_select(dead).count_nonzero().item<int64_t>(), 0) << item.key();
      EXPECT_GT(item.value().detach().count_nonzero().item<int64_t>(), 0) << item.key();
    }
  }
}

/// Muon turns matrices in bf16, whose sums round otherwise without the rows of zeros.
TEST_P(OfEveryRule, MovesTheMaskedAsItMovesTheCut) {
  const std::vector<sparsity::Group> groups{tests::groups_of_every_kind()[0]};
  sparsity::Masks masks;
  masks.insert("coupled", at::tensor({1, 0, 1, 0, 0, 1}, at::kLong).to(at::kBool));
  Replica masked = make_replica();
  const sparsity::Cut cut = sparsity::make_cut(groups, masks, sparsity::shapes_of(masked.weights));
  LocalTerms terms;
  const at::Tensor alive = masks["coupled"].to(at::kDouble);
  terms.masks.insert("first", alive.view({6, 1, 1, 1}).expand({6, 3, 3, 3}).contiguous(kFormat));
  terms.masks.insert("gamma", alive.clone());
  terms.masks.insert("second", alive.view({1, 6, 1, 1}).expand({5, 6, 2, 3}).contiguous(kFormat));
  {
    at::NoGradGuard no_grad;
    for (const auto& mask : terms.masks) masked.weights.params[mask.key()].mul_(mask.value());
  }
  TensorDict start;
  for (const auto& item : masked.weights.params) start.insert(item.key(), item.value().detach().clone());
  sparsity::apply_cut(start, cut);
  Replica small = replica_of(start);
  for (int64_t step = 1; step <= 5; ++step) {
    TensorDict gradients = random_tensors(at::kDouble, kFormat, 10 + step);
    set_gradients(masked, gradients);
    sparsity::apply_cut(gradients, cut);
    set_gradients(small, gradients);
    OptimizerOptions options = of_rule();
    options.clip_norm = 2;
    optimizer_step(masked, terms, options);
    optimizer_step(small, LocalTerms(), options);
  }
  sparsity::apply_cut(masked.weights.params, cut);
  for (auto& state : masked.optimizer) sparsity::apply_cut(state.value(), cut);
  expect_close(masked, small, GetParam() == Optimizer::kMuon ? 2e-2 : 1e-13);
}

TEST_P(OfEveryRule, ClipsLikeClipGradNorm) {
  for (const double most : {0.5, 1e3}) {
    Replica ours = make_replica(), theirs = make_replica();
    const TensorDict gradients = random_tensors(at::kDouble, kFormat, 10);
    double squares = 0;
    for (const auto& item : gradients) squares += item.value().square().sum().item<double>();
    const double scale = std::min(1.0, most / (std::sqrt(squares) + 1e-6));
    set_gradients(ours, gradients);
    set_gradients(theirs, gradients);
    for (auto& item : theirs.weights.params) item.value().mutable_grad().mul_(scale);
    OptimizerOptions options = of_rule();
    optimizer_step(theirs, LocalTerms(), options);
    options.clip_norm = most;
    optimizer_step(ours, LocalTerms(), options);
    expect_close(ours, theirs, 1e-12);
  }
}

TEST_P(OfEveryRule, RefusesToStepWithoutState) {
  Replica replica = make_replica();
  replica.optimizer = OptimizerState();
  set_gradients(replica, random_tensors(at::kDouble, kFormat, 10));
  EXPECT_THAT([&] { optimizer_step(replica, LocalTerms(), of_rule()); },
              ThrowsMessage<c10::Error>(HasSubstr("no state of")));
}

std::string name_of_rule(const testing::TestParamInfo<Optimizer>& info) {
  constexpr const char* kNames[] = {"sgd", "nesterov", "adamw", "lamb", "muon"};
  return kNames[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Optimizer, OfEveryRule,
                         testing::Values(Optimizer::kSgd, Optimizer::kNesterov, Optimizer::kAdamW, Optimizer::kLamb,
                                         Optimizer::kMuon),
                         name_of_rule);

TEST(FreshState, OfMuonIsMomentumForMatricesAndMomentsForTheHeadAndVectors) {
  const OptimizerState state = fresh_state(random_tensors(at::kFloat, kFormat), Optimizer::kMuon);
  EXPECT_THAT(state.keys(), ElementsAre("momentum", "exp_avg", "exp_avg_sq"));
  EXPECT_THAT(state["momentum"].keys(), ElementsAre("first", "second"));
  for (const char* moment : {"exp_avg", "exp_avg_sq"}) {
    EXPECT_THAT(state[moment].keys(), ElementsAre("gamma", "linear", "free"));
  }
  EXPECT_FALSE(state["exp_avg"]["gamma"].is_same(state["exp_avg_sq"]["gamma"]));
}

TEST(ClipGradients, LeavesParametersWithoutGradientsAlone) {
  TensorDict params;
  params.insert("still", at::zeros({2}).requires_grad_());
  EXPECT_NO_THROW(clip_gradients(params, TensorDict(), 1));
  EXPECT_FALSE(params["still"].grad().defined());
}

}  // namespace
}  // namespace prunex::train
