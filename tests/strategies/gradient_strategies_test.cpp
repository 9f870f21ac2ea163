// Strategies that average gradients in every step, against one process that has all ranks' gradients.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "prunex/comm/connect.h"
#include "prunex/strategies/dictionaries.h"
#include "prunex/strategies/gradients/gradients.h"
#include "tests/groups.h"
#include "tests/strategies/gradient_runs.h"

namespace prunex::strategies {
namespace {

constexpr double kRate = 0.1;
constexpr int kSteps = 6;
constexpr Reporting kReporting{.steps = 4, .total_steps = kSteps};

/// The gradient that a rank meets in a step: noise.
TensorDict gradients(int rank, int64_t step) {
  return tests::random_tensors(at::kFloat, at::MemoryFormat::ChannelsLast, 1000 + 100 * rank + step);
}

TensorDict mean_gradients(int ranks, int64_t step) {
  TensorDict mean = gradients(0, step);
  for (int rank = 1; rank < ranks; ++rank) {
    for (const auto& grad : gradients(rank, step)) mean[grad.key()].add_(grad.value());
  }
  for (auto& grad : mean) grad.value().div_(ranks);
  return mean;
}

Replica replica_of(int rank) {
  Replica replica;
  for (const auto& theta : tests::random_tensors(at::kFloat, at::MemoryFormat::ChannelsLast, rank)) {
    replica.weights.params.insert(theta.key(), theta.value().clone().set_requires_grad(true));
  }
  return replica;
}

/// One rank's run: linear losses, plain SGD. `seen` is called with what the optimizer sees in every step.
using Seen = std::function<void(int64_t step, const TensorDict& grads)>;
TensorDict run_rank(
    comm::Hierarchy& ranks, const Make& make, const Seen& seen = [](int64_t, const TensorDict&) {}) {
  Replica replica = replica_of(ranks.layout.rank);
  const auto strategy = make(replica, ranks);
  for (int64_t step = 1; step <= kSteps; ++step) {
    at::Tensor loss = at::zeros({});
    for (const auto& grad : gradients(ranks.layout.rank, step)) {
      loss = loss + (replica.weights.params[grad.key()] * grad.value()).sum();
    }
    loss.backward();
    strategy->before_update(replica);
    at::NoGradGuard no_grad;
    TensorDict grads;
    for (auto& theta : replica.weights.params) {
      grads.insert(theta.key(), theta.value().grad().clone());
      theta.value().sub_(theta.value().grad(), kRate);
      theta.value().mutable_grad().reset();
    }
    seen(step, grads);
    const Exchange exchange = strategy->after_update(replica, step);
    EXPECT_EQ(exchange.exchanged, step == 4 || step == kSteps) << step;
  }
  return clones(strategy->product().params);
}

std::vector<TensorDict> run_all(const comm::Layout& layout, const Make& make) {
  std::vector<TensorDict> results(static_cast<size_t>(layout.world_size()));
  comm::run_ranks(layout, [&](comm::Hierarchy& h) { results[static_cast<size_t>(h.layout.rank)] = run_rank(h, make); });
  return results;
}

/// What one process with all gradients gets, from rank 0's weights.
TensorDict reference(int ranks) {
  TensorDict theta = clones(detached(replica_of(0).weights.params));
  for (int64_t step = 1; step <= kSteps; ++step) {
    for (const auto& grad : mean_gradients(ranks, step)) theta[grad.key()].sub_(grad.value(), kRate);
  }
  return theta;
}

void expect_reference(const Make& make, double tolerance, const std::string& what) {
  for (const comm::Layout& layout : {comm::Layout::even(1, 1), comm::Layout::even(2, 2), comm::Layout{{2, 1}}}) {
    const auto results = run_all(layout, make);
    for (const auto& result : results) {
      EXPECT_EQ(worst_gap(result, results[0]), 0) << what << ", " << comm::describe(layout);
      EXPECT_LT(worst_gap(result, reference(layout.world_size())), tolerance) << what << ", " << comm::describe(layout);
    }
  }
}

Make ddp(DdpOptions options) {
  options.reporting = kReporting;
  return [options](Replica& replica, comm::Hierarchy& ranks) { return make_ddp(replica, ranks, options); };
}
Make top_k(TopKOptions options) {
  options.reporting = kReporting;
  return [options](Replica& replica, comm::Hierarchy& ranks) { return make_top_k(replica, ranks, options); };
}
Make powersgd(PowerSgdOptions options) {
  options.reporting = kReporting;
  return [options](Replica& replica, comm::Hierarchy& ranks) { return make_powersgd(replica, ranks, options); };
}

TEST(Ddp, IsOneProcessWithAllGradients) {
  expect_reference(ddp({}), 1e-5, "hierarchical");
  expect_reference(ddp({.exchange = {.form = ExchangeForm::kLeader}}), 1e-5, "leader");
  expect_reference(ddp({.exchange = {.form = ExchangeForm::kFlat}}), 1e-5, "flat");
  expect_reference(ddp({.buckets = {.first = 100, .others = 300}}), 1e-5, "many buckets");
  expect_reference(ddp({.exchange = {.payload = Payload::kFp16}}), 2e-3, "fp16");
  expect_reference(ddp({.exchange = {.payload = Payload::kBf16}}), 1e-2, "bf16");
}

TEST(Ddp, RefusesPayloadsWithoutErrorFeedback) {
  comm::run_ranks(1, 1, [](comm::Hierarchy& h) {
    Replica replica = replica_of(0);
    EXPECT_THROW(ddp({.exchange = {.payload = Payload::kInt4}})(replica, h), std::invalid_argument);
    EXPECT_THROW(ddp({.exchange = {ExchangeForm::kFlat, Payload::kBf16}})(replica, h), std::invalid_argument);
  });
}

TEST(Ddp, AParameterThatAStepDoesNotUseHasAZeroGradient) {
  comm::run_ranks(1, 2, [](comm::Hierarchy& h) {
    Replica replica = replica_of(0);
    const auto strategy = ddp({})(replica, h);
    for (int step = 0; step < 2; ++step) {
      replica.weights.params["gamma"].sum().mul(h.layout.rank + 1).backward();
      strategy->before_update(replica);
      EXPECT_TRUE(replica.weights.params["gamma"].grad().equal(at::full({6}, 1.5)));
      EXPECT_EQ(replica.weights.params["first"].grad().abs().max().item<double>(), 0);
      for (auto& theta : replica.weights.params) theta.value().mutable_grad().reset();
    }
  });
}

/// Bytes that node 0 sends to the other nodes per step.
double bytes_per_step(const Make& make) {
  std::vector<int64_t> sent(4);
  comm::run_ranks(2, 2, [&](comm::Hierarchy& h) {
    run_rank(h, make);
    sent[static_cast<size_t>(h.layout.rank)] = comm::moved_by_exchanges(h).sent_to_nodes;
  });
  return static_cast<double>(sent[0] + sent[1]) / kSteps;
}

int64_t count_of_parameters() {
  int64_t count = 0;
  for (const auto& theta : replica_of(0).weights.params) count += theta.value().numel();
  return count;
}

TEST(Ddp, SendsWhatTheFormulasSay) {
  const auto bytes = static_cast<double>(4 * count_of_parameters());
  EXPECT_NEAR(bytes_per_step(ddp({})), bytes, 64);  // 2 (M-1)/M
  EXPECT_NEAR(bytes_per_step(ddp({.exchange = {.form = ExchangeForm::kFlat}})), 2 * 0.75 * bytes,
              128);  // 2 (MP-1)/(MP)
  EXPECT_NEAR(bytes_per_step(ddp({.exchange = {.payload = Payload::kBf16}})), bytes / 2, 64);
}

TEST(TopK, OfDensityOneIsDdp) {
  expect_reference(top_k({.density = 1}), 1e-5, "error feedback");
  expect_reference(top_k({.density = 1, .error_feedback = false}), 1e-5, "no error feedback");
}

/// Sum over steps of what the optimizer saw, and the sum of the mean gradients that there were.
std::pair<TensorDict, TensorDict> seen_and_given(comm::Hierarchy& h, const Make& make) {
  TensorDict total = zeros_like(gradients(0, 1)), given = zeros_like(total);
  run_rank(h, make, [&](int64_t step, const TensorDict& grads) {
    for (const auto& grad : grads) total[grad.key()].add_(grad.value());
    for (const auto& grad : mean_gradients(h.layout.world_size(), step)) given[grad.key()].add_(grad.value());
  });
  return {total, given};
}

/// What is not sent is kept: seen + mean over ranks of what waits = given. `rest` finds it in a strategy's state.
void expect_nothing_lost(const Make& make, const std::string& what) {
  comm::run_ranks(2, 2, [&](comm::Hierarchy& h) {
    TensorDict waits;
    const Strategy* strategy = nullptr;
    const Make watched = [&](Replica& replica, comm::Hierarchy& ranks) {
      auto made = make(replica, ranks);
      for (const auto& item : made->state().rank) {
        if (item.key().starts_with("rest/")) waits.insert(item.key().substr(5), item.value());  // shared with it
      }
      strategy = made.get();
      return made;
    };
    auto [seen, given] = seen_and_given(h, watched);
    ASSERT_GT(waits.size(), 0);
    double lost = 0;
    for (auto& rest : waits) {
      at::Tensor mean = rest.value().contiguous().clone();
      h.flat->all_reduce(mean);
      mean.div_(4);
      const at::Tensor& wanted = given[rest.key()];
      at::Tensor total = seen[rest.key()] + mean.view(wanted.sizes());
      EXPECT_LT((total - wanted).abs().max().item<double>(), 1e-5) << what << " " << rest.key();
      lost += mean.abs().sum().item<double>();
    }
    EXPECT_GT(lost, 1) << what << " held nothing back";
  });
}

TEST(TopK, KeepsWhatItDoesNotSend) {
  for (const double density : {0.01, 0.2}) expect_nothing_lost(top_k({.density = density}), "top_k");
}

TEST(TopK, TakesNothingOfAMatrixWithoutEntries) {
  comm::run_ranks(2, 1, [](comm::Hierarchy& ranks) {
    Replica replica = replica_of(0);
    replica.weights.params.insert("none", at::zeros({0, 5}).set_requires_grad(true));
    const auto strategy = top_k({.density = 0.5})(replica, ranks);
    for (auto& theta : replica.weights.params) theta.value().mutable_grad() = at::ones_like(theta.value().detach());
    strategy->before_update(replica);
    for (auto& theta : replica.weights.params) {
      if (theta.value().dim() < 2) continue;
      const int64_t sent = theta.value().grad().count_nonzero().item<int64_t>();
      EXPECT_EQ(sent, (theta.value().numel() + 1) / 2) << theta.key();
    }
  });
}

TEST(TopK, SendsTheLargestEntriesAlone) {
  comm::run_ranks(1, 1, [](comm::Hierarchy& h) {
    run_rank(h, top_k({.density = 0.05, .error_feedback = false}), [](int64_t step, const TensorDict& grads) {
      for (const auto& grad : gradients(0, step)) {
        const at::Tensor got = grads[grad.key()];
        if (grad.value().dim() == 1) {
          EXPECT_TRUE(got.equal(grad.value()));
          continue;
        }
        const auto count = static_cast<int64_t>(std::ceil(0.05 * static_cast<double>(got.numel())));
        EXPECT_EQ((got != 0).sum().item<int64_t>(), count);
        const auto least = got.abs().masked_select(got != 0).min();
        EXPECT_EQ((grad.value().abs() > least).sum().item<int64_t>(), count - 1) << grad.key();
        EXPECT_TRUE(got.equal(grad.value() * (got != 0)));
      }
    });
  });
}

// 8 bytes per entry from every rank to the other node; vectors as in an all-reduce.
TEST(TopK, SendsWhatTheFormulaSays) {
  double entries = 0, vectors = 0;
  for (const auto& theta : replica_of(0).weights.params) {
    const auto size = static_cast<double>(theta.value().numel());
    (theta.value().dim() > 1 ? entries : vectors) += theta.value().dim() > 1 ? std::ceil(0.1 * size) : size;
  }
  EXPECT_NEAR(bytes_per_step(top_k({.density = 0.1})), 2 * 8 * entries + 4 * vectors, 16);
}

TEST(Dgc, OfDensityOneIsMomentumSgd) {
  const auto results = run_all(comm::Layout::even(2, 1), top_k({.density = 1, .dgc = true}));
  TensorDict theta = clones(detached(replica_of(0).weights.params)), velocity = zeros_like(theta);
  for (int64_t step = 1; step <= kSteps; ++step) {
    for (const auto& grad : mean_gradients(2, step)) {
      // what is sent takes its momentum with it: with everything sent none is left in matrices; vectors keep theirs
      at::Tensor& v = velocity[grad.key()];
      v.mul_(grad.value().dim() > 1 ? 0 : 0.9).add_(grad.value());
      theta[grad.key()].sub_(v, kRate);
    }
  }
  EXPECT_LT(worst_gap(results[0], theta), 1e-5);
}

TEST(Dgc, WarmsUpExponentiallyFromAQuarter) {
  TopKOptions options{.density = 0.001, .dgc = true};
  options.dgc_options.warmup_steps = 4;
  EXPECT_DOUBLE_EQ(density_at(options, 1), 0.25);
  EXPECT_NEAR(density_at(options, 3), std::sqrt(0.25 * 0.001), 1e-12);
  EXPECT_DOUBLE_EQ(density_at(options, 5), 0.001);
  options.dgc = false;
  EXPECT_DOUBLE_EQ(density_at(options, 1), 0.001);
}

TEST(Dgc, ClipsEveryRanksShareOfTheNorm) {
  TopKOptions options{.density = 1, .dgc = true};
  options.dgc_options = {.momentum = 0, .clip = 0.5};
  comm::run_ranks(2, 1, [&](comm::Hierarchy& h) {
    run_rank(h, top_k(options), [&](int64_t step, const TensorDict& grads) {
      TensorDict wanted = zeros_like(grads);
      for (int rank = 0; rank < 2; ++rank) {
        double squares = 0;
        for (const auto& grad : gradients(rank, step)) squares += grad.value().square().sum().item<double>();
        const double scale = 0.5 / std::sqrt(2) / std::sqrt(squares);
        for (const auto& grad : gradients(rank, step)) wanted[grad.key()].add_(grad.value(), scale / 2);
      }
      EXPECT_LT(worst_gap(grads, wanted), 1e-6);
    });
  });
}

TEST(PowerSgd, OfFullRankIsDdp) {
  expect_reference(powersgd({.rank = 100, .least_shrinkage = 0}), 1e-4, "full rank");
  expect_reference(powersgd({.rank = 1, .start_after = kSteps}), 1e-5, "not started");
}

TEST(PowerSgd, SeesGradientsAgainAfterAStepInWhichTheyWereZero) {
  comm::run_ranks(2, 1, [](comm::Hierarchy& h) {
    Replica replica = replica_of(0);
    const auto strategy = powersgd({.rank = 100, .least_shrinkage = 0})(replica, h);
    for (const int64_t step : {1, 2}) {
      const TensorDict noise = gradients(h.layout.rank, step);
      for (const auto& grad : step == 1 ? zeros_like(noise) : noise) {
        replica.weights.params[grad.key()].mutable_grad() = grad.value().clone();
      }
      strategy->before_update(replica);
    }
    TensorDict seen;
    for (const auto& theta : replica.weights.params) seen.insert(theta.key(), theta.value().grad());
    EXPECT_LT(worst_gap(seen, mean_gradients(2, 2)), 1e-4);
  });
}

/// Of each matrix two rows alone are not 0.
TensorDict gradients_of_two_rows(int rank, int64_t step) {
  TensorDict sparse = gradients(rank, step);
  for (auto& grad : sparse) {
    if (grad.value().dim() > 1) grad.value().slice(0, 2).zero_();
  }
  return sparse;
}

// Of more columns than such a gradient has rows, the others are noise.
TEST(PowerSgd, SendsGradientsOfLowerRankAsTheyAre) {
  comm::run_ranks(2, 1, [](comm::Hierarchy& h) {
    Replica replica = replica_of(0);
    const auto strategy = powersgd({.rank = 100, .least_shrinkage = 0})(replica, h);
    for (int64_t step = 1; step <= 20; ++step) {
      for (const auto& grad : gradients_of_two_rows(h.layout.rank, step)) {
        replica.weights.params[grad.key()].mutable_grad() = grad.value().clone();
      }
      strategy->before_update(replica);
      const TensorDict other = gradients_of_two_rows(1 - h.layout.rank, step);
      for (const auto& grad : gradients_of_two_rows(h.layout.rank, step)) {
        const at::Tensor mean = (grad.value() + other[grad.key()]) / 2;
        const at::Tensor seen = replica.weights.params[grad.key()].grad();
        EXPECT_LT((seen - mean).abs().max().item<double>(), 1e-4) << grad.key() << " in step " << step;
      }
    }
  });
}

TEST(PowerSgd, KeepsWhatTheFactorsLeaveOut) {
  for (const int64_t rank : {1, 2}) {
    expect_nothing_lost(powersgd({.rank = rank, .least_shrinkage = 0}), "powersgd");
  }
}

TEST(PowerSgd, SeesGradientsOfItsRank) {
  comm::run_ranks(1, 2, [](comm::Hierarchy& h) {
    run_rank(h, powersgd({.rank = 2, .least_shrinkage = 0}), [](int64_t, const TensorDict& grads) {
      const at::Tensor values = at::linalg_svdvals(grads["second"].reshape({5, -1}));
      EXPECT_LT((values[2] / values[0]).item<double>(), 1e-5);
      EXPECT_GT((values[1] / values[0]).item<double>(), 1e-3);
    });
  });
}

// Both factors of every matrix and the vectors, once each.
TEST(PowerSgd, SendsWhatTheFormulaSays) {
  double numbers = 0;
  for (const auto& theta : replica_of(0).weights.params) {
    const int64_t size = theta.value().numel(), rows = theta.value().size(0), columns = size / rows;
    const bool factored = theta.value().dim() > 1 && 2 * (rows + columns) < size;
    numbers += static_cast<double>(factored ? rows + columns : size);
  }
  EXPECT_LT(numbers, 0.6 * static_cast<double>(count_of_parameters()));
  EXPECT_NEAR(bytes_per_step(powersgd({.rank = 1})), 4 * numbers, 16);
}

// A strategy that was saved in the middle goes on as if nothing had happened.
TEST(GradientStrategies, GoOnFromTheirState) {
  const std::vector<Make> makes = {ddp({}), top_k({.density = 0.1}), top_k({.density = 0.1, .dgc = true}),
                                   powersgd({.rank = 1})};
  for (const Make& make : makes) {
    comm::run_ranks(2, 1, [&](comm::Hierarchy& h) {
      const auto step_on = [&](Strategy& strategy, Replica& replica, int64_t step) {
        for (const auto& grad : gradients(h.layout.rank, step)) {
          replica.weights.params[grad.key()].mutable_grad() = grad.value().clone();
        }
        strategy.before_update(replica);
        at::NoGradGuard no_grad;
        for (auto& theta : replica.weights.params) {
          theta.value().sub_(theta.value().grad(), kRate);
          theta.value().mutable_grad().reset();
        }
        strategy.after_update(replica, step);
      };
      Replica replica = replica_of(0), resumed = replica_of(1);
      auto whole = make(replica, h);
      for (int64_t step = 1; step <= 3; ++step) step_on(*whole, replica, step);
      State saved = whole->state();
      saved = {clones(saved.global), clones(saved.node), clones(saved.rank)};
      for (int64_t step = 4; step <= 6; ++step) step_on(*whole, replica, step);
      const TensorDict expected = clones(whole->product().params);
      whole.reset();  // one at a time
      const auto second = make(resumed, h);
      second->load(saved, nullptr, resumed);
      for (int64_t step = 4; step <= 6; ++step) step_on(*second, resumed, step);
      EXPECT_EQ(worst_gap(expected, second->product().params), 0);
    });
  }
}

}  // namespace
}  // namespace prunex::strategies
