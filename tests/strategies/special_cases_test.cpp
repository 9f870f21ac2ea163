// Algorithms of others that are settings of H-SADMM, each written out here as its authors do.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "prunex/strategies/hsadmm/hsadmm.h"
#include "tests/groups.h"
#include "tests/strategies/small_problem.h"
#include "tests/units.h"

namespace prunex::strategies {
namespace {

void expect_close(const TensorDict& ours, const std::string& room, const TensorDict& theirs, double tolerance) {
  for (const auto& item : theirs) {
    const double gap = (ours[room + item.key()] - item.value()).abs().max().item<double>();
    EXPECT_LE(gap, tolerance) << room << item.key();
  }
}

/// Replicas that start from rank 0's weights.
std::vector<Replica> common_start(int ranks) {
  std::vector<Replica> replicas;
  for (int rank = 0; rank < ranks; ++rank) replicas.push_back(SmallProblem(0).initial_replica());
  return replicas;
}

at::Tensor mean_of(const std::vector<Replica>& replicas, const std::string& name) {
  at::Tensor mean = at::zeros_like(replicas[0].weights.params[name]);
  for (const Replica& replica : replicas) mean += replica.weights.params[name];
  return mean / static_cast<double>(replicas.size());
}

TensorDict mean_of(const std::vector<Replica>& replicas) {
  TensorDict means;
  for (const auto& name : replicas[0].weights.params.keys()) means.insert(name, mean_of(replicas, name));
  return means;
}

/// DiLoCo's: z and the velocity move by the outer gradient z - mean, as torch.optim.SGD(nesterov=True) moves them.
void outer_step(TensorDict& z, TensorDict& velocity, const TensorDict& mean, double rate, double momentum) {
  for (auto& item : z) {
    const at::Tensor gradient = item.value() - mean[item.key()];
    velocity[item.key()] = momentum * velocity[item.key()] + gradient;
    item.value() = item.value() - rate * (gradient + momentum * velocity[item.key()]);
  }
}

/// The `kept` rows of largest norm; the others become zero.
at::Tensor with_best_rows(const at::Tensor& tensor, int64_t kept) {
  const at::Tensor best = std::get<1>(tensor.flatten(1).square().sum(1).topk(kept));
  at::Tensor result = at::zeros_like(tensor);
  return result.index_copy_(0, best, tensor.index_select(0, best));
}

HsadmmOptions consensus_options(double lambda) {
  HsadmmOptions options;
  for (const auto& [name, size] : std::vector<std::pair<std::string, int64_t>>{{"first", 6}, {"second", 5}}) {
    options.masks.groups.push_back({.name = name, .slices = {{name, sparsity::kRows, {}}}, .size = size, .keep = 0.5});
  }
  options.masks.keep.ramp = sparsity::KeepRamp::kHard;
  options.local.steps = 1;
  options.local.total_steps = 30;
  options.consensus.penalty = {.rule = admm::PenaltyRule::kFixed, .rho1 = 0.8, .rho2 = 0.5};
  options.consensus.lambda = lambda;
  options.consensus.aux = AuxTensors::kAdmm;
  return options;
}

TEST(Flat, IsTheConsensusAdmmOfTheTextbook) {
  // Boyd et al. 2011, section 7.1 in scaled form: x_i = argmin f_i + rho/2 |x_i - z + u_i|^2, z = argmin g + N rho/2
  // |z - mean(x) - mean(u)|^2, u_i += x_i - z; g = N lambda/2 |z|^2 and "3 rows of either convolution".
  constexpr int kRanks = 4;
  constexpr double kRho = 0.8;
  for (const double lambda : {0.0, 0.3}) {
    const auto ours = run_on_ranks(1, kRanks, consensus_options(lambda), LocalPhase::kMinimise);
    const auto problems = problems_of(kRanks);
    auto replicas = common_start(kRanks);
    TensorDict z = clones(replicas[0].weights.params);
    std::vector<TensorDict> u(kRanks);
    for (auto& dual : u) {
      for (const auto& item : z) dual.insert(item.key(), at::zeros_like(item.value()));
    }
    for (int64_t k = 0; k < 30; ++k) {
      for (int i = 0; i < kRanks; ++i) {
        LocalTerms terms;
        for (const auto& item : z) terms.anchor.insert(item.key(), item.value() - u[i][item.key()]);
        terms.rho1.assign(z.size(), kRho);
        problems[i].minimise(replicas[i], terms);
      }
      for (auto& item : z) {
        at::Tensor sum = at::zeros_like(item.value());
        for (int i = 0; i < kRanks; ++i) sum += replicas[i].weights.params[item.key()] + u[i][item.key()];
        item.value() = kRho / (lambda + kRho) * sum / kRanks;
        if (item.key() == "first" || item.key() == "second") item.value() = with_best_rows(item.value(), 3);
        for (int i = 0; i < kRanks; ++i) u[i][item.key()] += replicas[i].weights.params[item.key()] - item.value();
      }
      for (int i = 0; i < kRanks; ++i) {
        expect_close(ours[i][k].state, "z/", z, 1e-12);
        expect_close(ours[i][k].state, "u/", u[i], 1e-12);
        EXPECT_EQ(ours[i][k].exchange.rho2, 0);
      }
    }
  }
}

TEST(Hierarchical, FindsTheMinimumOfTheSumWhereNothingIsPruned) {
  HsadmmOptions options = consensus_options(0);
  options.masks.groups.clear();
  options.local.total_steps = 150;
  const auto histories = run_on_ranks(2, 2, options, LocalPhase::kMinimise);
  const TensorDict minimum = SmallProblem::common_minimum(problems_of(4));
  for (const History& history : histories) expect_close(history.back().state, "z/", minimum, 1e-9);
}

HsadmmOptions without_admm() {
  HsadmmOptions options = default_options();
  options.masks.groups.clear();
  options.consensus.penalty.kappa = 0;
  options.after_freeze = AfterFreeze::kAverage;
  return options;
}

TEST(LocalSgd, IsPlainAveraging) {
  const HsadmmOptions options = without_admm();
  const auto ours = run_on_ranks(2, 2, options);
  const auto problems = problems_of(4);
  auto replicas = common_start(4);
  for (int64_t step = 1, k = 0; step <= options.local.total_steps; ++step) {
    for (int r = 0; r < 4; ++r) problems[r].train(replicas[r], LocalTerms(), step, step);
    if (step % options.local.steps != 0 && step != options.local.total_steps) continue;
    TensorDict mean;
    for (const auto& name : replicas[0].weights.params.keys()) mean.insert(name, mean_of(replicas, name));
    at::Tensor statistic = at::zeros({6}, at::kDouble);
    for (const Replica& replica : replicas) statistic += replica.weights.buffers["mean"] / 4;
    for (Replica& replica : replicas) {
      replica.weights.params = clones(mean);
      replica.weights.buffers["mean"] = statistic.clone();
    }
    for (int r = 0; r < 4; ++r) {
      expect_close(ours[r][k].theta, "", mean, 1e-14);
      expect_close(ours[r][k].momentum, "", replicas[r].optimizer["momentum"], 1e-13);
      EXPECT_TRUE(at::allclose(ours[r][k].buffers["mean"], statistic, 0, 1e-14));
      EXPECT_EQ(ours[r][k].buffers["counter"].item<int64_t>(), step);
      EXPECT_TRUE(ours[r][k].exchange.residuals.empty());
    }
    ++k;
  }
}

TEST(LocalSgd, OfOneRankIsSgd) {
  const auto ours = run_on_ranks(1, 1, without_admm());
  Replica replica = SmallProblem(0).initial_replica();
  SmallProblem(0).train(replica, LocalTerms(), 1, without_admm().local.total_steps);
  expect_close(ours[0].back().state, "z/", replica.weights.params, 0);
}

TEST(DiLoCo, IsAveragingWithAnOuterNesterovStep) {
  // Douillard et al. 2023, algorithm 1: the outer gradient is z - mean(theta); torch.optim.SGD(nesterov=True) on it
  constexpr double kRate = 0.7, kOuterMomentum = 0.9;
  HsadmmOptions options = without_admm();
  options.after_freeze = AfterFreeze::kNesterov;
  options.masks.freeze_after = kNever;
  options.outer = OuterStep();
  const auto ours = run_on_ranks(2, 2, options);
  const auto problems = problems_of(4);
  auto replicas = common_start(4);
  TensorDict z = clones(replicas[0].weights.params), velocity;
  for (const auto& item : z) velocity.insert(item.key(), at::zeros_like(item.value()));
  for (int64_t k = 0; k < 6; ++k) {
    for (int r = 0; r < 4; ++r)
      problems[r].train(replicas[r], LocalTerms(), 3 * k + 1, std::min<int64_t>(3 * k + 3, 17));
    outer_step(z, velocity, mean_of(replicas), kRate, kOuterMomentum);
    for (int r = 0; r < 4; ++r) {
      replicas[r].weights.params = clones(z);
      expect_close(ours[r][k].state, "z/", z, 1e-13);
      expect_close(ours[r][k].theta, "", z, 1e-13);
    }
  }
}

/// An exchange of the written-out form that is on its way.
struct Sent {
  int64_t step = 0;
  TensorDict mean;
  std::vector<TensorDict> theta;
};

Sent sent_at(int64_t step, const std::vector<Replica>& replicas) {
  Sent sent;
  sent.step = step;
  sent.mean = mean_of(replicas);
  for (const auto& replica : replicas) sent.theta.push_back(clones(replica.weights.params));
  return sent;
}

/// theta <- z, with what theta has moved since it was sent.
void land(TensorDict& params, const TensorDict& sent, const TensorDict& z) {
  for (auto& theta : params) theta.value() = z[theta.key()] + theta.value() - sent[theta.key()];
}

// docs/algorithm.md, "Exchanges beside local steps": what was sent at step s comes back at step e; z is then what
// DiLoCo makes of that mean, and theta z + (theta - theta of step s). Exchanges of 3, 6, 9, 12, 15 and 17; the first,
// at which nothing is final yet, and the last are waited for, and the one before the last is back before that.
TEST(DiLoCo, BesideLocalStepsIsDiLoCoWithLateMeans) {
  constexpr double kRate = 0.7, kOuterMomentum = 0.9;
  HsadmmOptions options = without_admm();
  options.outer.from = 1;
  options.masks.freeze_after = kNever;  // there is nothing to freeze
  options.overlap = 2;
  const auto ours = run_on_ranks(2, 2, options);
  const std::map<int64_t, int64_t> sent_for = {{3, 3}, {8, 6}, {11, 9}, {14, 12}, {16, 15}, {17, 17}};
  const auto problems = problems_of(4);
  auto replicas = common_start(4);
  TensorDict z = clones(replicas[0].weights.params), velocity;
  for (const auto& item : z) velocity.insert(item.key(), at::zeros_like(item.value()));
  Sent sent;
  for (int64_t step = 1, k = 0; step <= 17; ++step) {
    for (int r = 0; r < 4; ++r) problems[r].train(replicas[r], LocalTerms(), step, step);
    if (step % 3 == 0 || step == 17) sent = sent_at(step, replicas);
    if (!sent_for.contains(step)) continue;
    ASSERT_EQ(sent.step, sent_for.at(step));
    outer_step(z, velocity, sent.mean, kRate, kOuterMomentum);
    for (int r = 0; r < 4; ++r) {
      land(replicas[r].weights.params, sent.theta[r], z);
      const Snapshot& snapshot = ours[r].at(static_cast<size_t>(k));
      EXPECT_EQ(snapshot.exchange.index, k + 1);
      EXPECT_EQ(snapshot.exchange.overlapped, step - sent.step);
      expect_close(snapshot.state, "z/", z, 1e-13);
      expect_close(snapshot.theta, "", replicas[r].weights.params, 1e-13);
      expect_close(snapshot.momentum, "", replicas[r].optimizer["momentum"], 1e-12);
    }
    ++k;
  }
}

/// 1 where masks leave entries alive, 0 elsewhere; of the tensors that lose some.
TensorDict alive_in(const HsadmmOptions& options, const sparsity::Masks& masks, const TensorDict& z) {
  TensorDict alive;
  for (const auto& item : z) {
    const at::Tensor entries =
        tests::alive_entries(options.masks.groups, masks, item.key(), item.value()).to(item.value().scalar_type());
    if (entries.min().item<double>() == 0) alive.insert(item.key(), entries);
  }
  return alive;
}

// The same rule from the freeze on, which is the exchange of step 9: what is alive is trained as DiLoCo trains it, from
// the z, the velocity and the momentum that the freeze left. Exchanges of 12, 15 and 17.
TEST(Hsadmm, BesideLocalStepsAfterTheFreezeIsDiLoCoOfWhatIsAlive) {
  constexpr double kRate = 0.7, kOuterMomentum = 0.8;
  HsadmmOptions options = default_options();
  options.outer = {.rate = kRate, .momentum = kOuterMomentum, .from = 1};
  options.masks.keep.start = 1;
  options.masks.keep.end = 2;
  options.masks.freeze_after = 2;
  options.overlap = 2;
  const auto ours = run_on_ranks(2, 2, options);
  size_t k = 0;
  while (!ours[0].at(k).exchange.frozen) ++k;
  ASSERT_EQ(k, 2U);
  TensorDict z, velocity;
  for (const auto& name : ours[0][k].theta.keys()) {
    z.insert(name, ours[0][k].state["z/" + name].clone());
    velocity.insert(name, ours[0][k].state["outer/" + name].clone());
  }
  LocalTerms terms;
  terms.masks = alive_in(options, ours[0][k].masks, z);
  ASSERT_FALSE(terms.masks.is_empty());
  for (const auto& mask : terms.masks) velocity[mask.key()].mul_(mask.value());
  auto replicas = common_start(4);
  for (size_t r = 0; r < 4; ++r) {
    replicas[r].weights.params = clones(ours[r][k].theta);
    replicas[r].optimizer["momentum"] = clones(ours[r][k].momentum);
  }
  const auto problems = problems_of(4);
  const std::map<int64_t, int64_t> sent_for = {{14, 12}, {16, 15}, {17, 17}};
  Sent sent;
  for (int64_t step = 10; step <= 17; ++step) {
    for (int r = 0; r < 4; ++r) problems[r].train(replicas[r], terms, step, step);
    if (step % 3 == 0 || step == 17) sent = sent_at(step, replicas);
    if (!sent_for.contains(step)) continue;
    ASSERT_EQ(sent.step, sent_for.at(step));
    outer_step(z, velocity, sent.mean, kRate, kOuterMomentum);
    ++k;
    for (size_t r = 0; r < 4; ++r) {
      land(replicas[r].weights.params, sent.theta[r], z);
      const Snapshot& snapshot = ours[r].at(k);
      EXPECT_EQ(snapshot.exchange.overlapped, step - sent.step);
      expect_close(snapshot.state, "z/", z, 1e-13);
      expect_close(snapshot.theta, "", replicas[r].weights.params, 1e-13);
    }
  }
  EXPECT_EQ(k, 5U);
}

}  // namespace
}  // namespace prunex::strategies
