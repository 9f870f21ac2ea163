// The optimizer against its formula, entry by entry, in double.
#include "prunex/train/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/groups.h"

namespace prunex::train {
namespace {

using strategies::LocalTerms;
using testing::HasSubstr;
using testing::ThrowsMessage;
using tests::random_tensors;

constexpr OptimizerOptions kOptions{.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.01};

/// Parameters in `format`, gradients row-major.
Replica make_replica(at::ScalarType type, at::MemoryFormat format) {
  Replica replica;
  for (const auto& item : random_tensors(type, format, 1)) {
    replica.weights.params.insert(item.key(), item.value().set_requires_grad(true));
  }
  replica.optimizer = fresh_state(replica.weights.params);
  return replica;
}

void set_gradients(Replica& replica, uint64_t seed) {
  const auto type = replica.weights.params.front().value().scalar_type();
  for (const auto& item : random_tensors(type, at::MemoryFormat::Contiguous, seed)) {
    replica.weights.params[item.key()].mutable_grad() = item.value();
  }
}

/// A proximal term on two parameters, masks on two, one of them both.
LocalTerms some_terms(at::ScalarType type, at::MemoryFormat format) {
  const TensorDict anchors = random_tensors(type, format, 2), noise = random_tensors(type, format, 3);
  LocalTerms terms;
  for (const char* name : {"first", "linear"}) {
    terms.anchor.insert(name, anchors[name]);
    terms.rho1.push_back(terms.rho1.empty() ? 0.3 : 0.7);
  }
  for (const char* name : {"first", "second"}) terms.masks.insert(name, noise[name].gt(0).to(type));
  return terms;
}

/// The formula of sgd.h on one entry at a time.
void naive_step(TensorDict& params, TensorDict& momentum, const TensorDict& gradients, const LocalTerms& terms) {
  for (auto& item : params) {
    double* theta = item.value().data_ptr<double>();
    double* v = momentum[item.key()].data_ptr<double>();
    const at::Tensor* anchor = terms.anchor.find(item.key());
    const at::Tensor* mask = terms.masks.find(item.key());
    const double rho = anchor == nullptr ? 0 : item.key() == "first" ? 0.3 : 0.7;
    for (int64_t i = 0; i < item.value().numel(); ++i) {
      const auto entry = [i](const at::Tensor& tensor) { return tensor.contiguous().data_ptr<double>()[i]; };
      double g = entry(gradients[item.key()]) + 0.01 * theta[i];
      if (anchor != nullptr) g += rho * (theta[i] - entry(*anchor));
      const double alive = mask == nullptr ? 1 : entry(*mask);
      v[i] = (0.9 * v[i] + g) * alive;
      theta[i] = (theta[i] - 0.1 * v[i]) * alive;
    }
  }
}

void expect_naive(at::ScalarType type, at::MemoryFormat format, bool with_terms) {
  Replica replica = make_replica(type, format);
  const LocalTerms terms = with_terms ? some_terms(type, format) : LocalTerms();
  TensorDict params, momentum;
  for (const auto& item : replica.weights.params) {
    params.insert(item.key(), item.value().detach().to(at::kDouble).contiguous().clone());
    momentum.insert(item.key(), at::zeros_like(params[item.key()]));
  }
  LocalTerms wide;
  for (const auto& item : terms.anchor) wide.anchor.insert(item.key(), item.value().to(at::kDouble));
  for (const auto& item : terms.masks) wide.masks.insert(item.key(), item.value().to(at::kDouble));
  for (uint64_t step = 0; step < 3; ++step) {
    set_gradients(replica, 10 + step);
    TensorDict gradients;
    for (const auto& item : replica.weights.params) {
      gradients.insert(item.key(), item.value().grad().to(at::kDouble));
    }
    optimizer_step(replica, terms, kOptions);
    naive_step(params, momentum, gradients, wide);
  }
  const double tolerance = type == at::kDouble ? 1e-14 : 1e-6;
  for (const auto& item : replica.weights.params) {
    const at::Tensor theta = item.value().detach().to(at::kDouble);
    EXPECT_TRUE(at::allclose(theta, params[item.key()], tolerance, tolerance)) << item.key();
    EXPECT_TRUE(at::allclose(replica.optimizer["momentum"][item.key()].to(at::kDouble), momentum[item.key()], tolerance,
                             tolerance));
    EXPECT_FALSE(item.value().grad().defined()) << item.key();
  }
}

TEST(SgdStep, IsItsFormulaWithoutTerms) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      expect_naive(type, format, false);
    }
  }
}

TEST(SgdStep, IsItsFormulaWithProximalTermsAndMasks) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      expect_naive(type, format, true);
    }
  }
}

TEST(SgdStep, TakesExpandedGradients) {
  Replica replica = make_replica(at::kDouble, at::MemoryFormat::ChannelsLast);
  const at::Tensor before = replica.weights.params["first"].detach().clone();
  replica.weights.params["first"].mutable_grad() = at::full({1, 1, 1, 1}, 2.0, at::kDouble).expand({6, 3, 3, 3});
  optimizer_step(replica, LocalTerms(), {.learning_rate = 0.5, .momentum = 0, .weight_decay = 0});
  EXPECT_TRUE(at::allclose(replica.weights.params["first"].detach(), before - 1, 0, 1e-15));
}

TEST(SgdStep, LeavesParametersWithoutAGradientAlone) {
  Replica replica = make_replica(at::kDouble, at::MemoryFormat::Contiguous);
  set_gradients(replica, 10);
  replica.weights.params["first"].mutable_grad().reset();
  const at::Tensor first = replica.weights.params["first"].detach().clone();
  const at::Tensor linear = replica.weights.params["linear"].detach().clone();
  optimizer_step(replica, some_terms(at::kDouble, at::MemoryFormat::Contiguous), kOptions);
  EXPECT_TRUE(at::equal(replica.weights.params["first"].detach(), first));
  EXPECT_FALSE(at::equal(replica.weights.params["linear"].detach(), linear));  // still finds its anchor
}

TEST(SgdStep, RefusesStateOfAnotherMemoryLayout) {
  Replica replica = make_replica(at::kFloat, at::MemoryFormat::ChannelsLast);
  set_gradients(replica, 10);
  const auto step = [&](const LocalTerms& terms) { return [&] { optimizer_step(replica, terms, kOptions); }; };
  EXPECT_THAT(step(some_terms(at::kFloat, at::MemoryFormat::Contiguous)),
              ThrowsMessage<c10::Error>(HasSubstr("memory layout")));
  set_gradients(replica, 10);
  replica.optimizer["momentum"]["first"] = replica.optimizer["momentum"]["first"].contiguous();
  EXPECT_THAT(step(LocalTerms()), ThrowsMessage<c10::Error>(HasSubstr("momentum of 'first'")));
}

TEST(LocalTermsOf, NoParameterAreRefused) {
  Replica replica = make_replica(at::kFloat, at::MemoryFormat::Contiguous);
  LocalTerms terms = some_terms(at::kFloat, at::MemoryFormat::Contiguous);
  terms.anchor.insert("other", at::zeros({3}));
  terms.rho1.push_back(1);
  set_gradients(replica, 10);
  EXPECT_THAT([&] { add_local_terms(replica.weights, terms); }, ThrowsMessage<c10::Error>(HasSubstr("'other'")));
  EXPECT_THAT([&] { optimizer_step(replica, terms, kOptions); }, ThrowsMessage<c10::Error>(HasSubstr("'other'")));
}

/// theta and momentum of a plain SGD loop that knows nothing of terms.
void plain_step(Replica& replica) {
  at::NoGradGuard no_grad;
  for (auto& item : replica.weights.params) {
    at::Tensor& v = replica.optimizer["momentum"][item.key()];
    v.mul_(0.9).add_(item.value().grad());
    item.value().sub_(v, 0.1);
  }
}

TEST(AddLocalTerms, GivesAnyOptimizerTheTermsOfOurs) {
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    Replica fused = make_replica(at::kDouble, format), plain = make_replica(at::kDouble, format);
    const LocalTerms terms = some_terms(at::kDouble, format);
    for (Replica* replica : {&fused, &plain}) {  // theta on the mask, as the freeze leaves it
      at::NoGradGuard no_grad;
      for (const auto& mask : terms.masks) replica->weights.params[mask.key()].mul_(mask.value());
    }
    for (uint64_t step = 0; step < 3; ++step) {
      set_gradients(fused, 10 + step);
      set_gradients(plain, 10 + step);
      optimizer_step(fused, terms, {.learning_rate = 0.1, .momentum = 0.9});
      add_local_terms(plain.weights, terms);
      plain_step(plain);
    }
    for (const auto& item : fused.weights.params) {
      EXPECT_TRUE(at::allclose(item.value(), plain.weights.params[item.key()], 1e-14, 1e-14)) << item.key();
      EXPECT_TRUE(
          at::allclose(fused.optimizer["momentum"][item.key()], plain.optimizer["momentum"][item.key()], 1e-14, 1e-14))
          << item.key();
    }
  }
}

TEST(AddLocalTerms, SkipsParametersWithoutAGradient) {
  Replica replica = make_replica(at::kDouble, at::MemoryFormat::Contiguous);
  add_local_terms(replica.weights, some_terms(at::kDouble, at::MemoryFormat::Contiguous));
  for (const auto& item : replica.weights.params) EXPECT_FALSE(item.value().grad().defined());
}

TEST(FreshState, HasTheLayoutOfItsParameter) {
  const Replica replica = make_replica(at::kFloat, at::MemoryFormat::ChannelsLast);
  for (const auto& item : replica.optimizer["momentum"]) {
    EXPECT_EQ(item.value().strides(), replica.weights.params[item.key()].strides());
    EXPECT_FALSE(item.value().requires_grad());
    EXPECT_EQ(item.value().count_nonzero().item<int64_t>(), 0);
  }
}

}  // namespace
}  // namespace prunex::train
