// Top-k, deep gradient compression, PowerSGD and post-local SGD, each written down for all ranks in one process, as its
// authors do: loops over ranks on whole tensors.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "prunex/strategies/gradients/gradients.h"
#include "tests/strategies/gradient_runs.h"

namespace prunex::strategies {
namespace {

constexpr Reporting kEightSteps{.steps = 4, .total_steps = 8};

std::vector<comm::Layout> shapes() {
  return {comm::Layout::even(2, 2), comm::Layout{.node_sizes = {2, 1}}};
}

/// What the optimizer sees of the gradients of all ranks.
using Combine = std::function<TensorDict(int64_t step, const std::vector<TensorDict>& gradients)>;

/// The weights after every step, from rank 0's.
std::vector<TensorDict> trajectory(int ranks, const Combine& combine, const GradientRun& run) {
  const auto problems = problems_of(ranks);
  TensorDict theta = problems[0].initial_replica().weights.params, velocity = zeros_like(theta);
  std::vector<TensorDict> steps;
  for (int64_t step = 1; step <= run.steps; ++step) {
    std::vector<TensorDict> gradients;
    for (const auto& problem : problems) gradients.push_back(problem.gradients(theta));
    const TensorDict seen = combine(step, gradients);
    for (auto& item : theta) {
      sgd_step(item.value(), velocity[item.key()], seen[item.key()], run.momentum, step);
    }
    steps.push_back(clones(theta));
  }
  return steps;
}

void expect_steps(const std::vector<std::vector<AfterStep>>& ours, const std::vector<TensorDict>& theirs) {
  for (size_t rank = 0; rank < ours.size(); ++rank) {
    for (size_t step = 0; step < theirs.size(); ++step) {
      EXPECT_LT(worst_gap(ours[rank][step].theta, theirs[step]), 1e-9) << "rank " << rank << ", step " << step + 1;
    }
  }
}

/// What every rank keeps of these tensors under `room` after the last step; vectors are not kept.
void expect_kept(const std::vector<std::vector<AfterStep>>& ours, const std::string& room,
                 const std::vector<TensorDict>& theirs) {
  for (size_t rank = 0; rank < ours.size(); ++rank) {
    for (const auto& item : theirs[rank]) {
      if (item.value().dim() == 1) continue;
      const at::Tensor gap = ours[rank].back().state[room + item.key()] - item.value();
      EXPECT_LT(gap.abs().max().item<double>(), 1e-9) << "rank " << rank << ", " << room << item.key();
    }
  }
}

at::Tensor mean_of(const std::vector<TensorDict>& gradients, const std::string& name) {
  at::Tensor sum = at::zeros_like(gradients[0][name]);
  for (const auto& own : gradients) sum += own[name];
  return sum / static_cast<double>(gradients.size());
}

TensorDict means_of(const std::vector<TensorDict>& gradients) {
  TensorDict means;
  for (const auto& name : gradients[0].keys()) means.insert(name, mean_of(gradients, name));
  return means;
}

/// 1 where fewer than `share` of the entries, rounded up, have a larger magnitude.
at::Tensor largest(const at::Tensor& tensor, double share) {
  const at::Tensor size = tensor.abs().reshape({-1});
  const at::Tensor larger = (size.unsqueeze(0) > size.unsqueeze(1)).sum(1);
  return (larger < std::ceil(share * static_cast<double>(tensor.numel()))).to(tensor.dtype()).view(tensor.sizes());
}

/// Entries travel in fp32.
at::Tensor as_sent(const at::Tensor& values) {
  return values.to(at::kFloat).to(values.dtype());
}

Make top_k_of(TopKOptions options) {
  options.reporting = kEightSteps;
  return [options](Replica& replica, comm::Hierarchy& ranks) { return make_top_k(replica, ranks, options); };
}

/// Every rank sends the largest entries of what waits; with feedback the rest waits on. Vectors go whole.
class TopKReference {
 public:
  TopKReference(int ranks, double density, bool feedback)
      : waiting_(static_cast<size_t>(ranks), zeros_like(SmallProblem(0).initial_replica().weights.params)),
        density_(density),
        feedback_(feedback) {}

  TensorDict operator()(const std::vector<TensorDict>& gradients) {
    TensorDict seen = means_of(gradients);
    for (auto& item : seen) {
      if (item.value().dim() == 1) continue;
      item.value().zero_();
      for (size_t rank = 0; rank < gradients.size(); ++rank) {
        at::Tensor& waiting = waiting_[rank][item.key()];
        waiting = waiting + gradients[rank][item.key()];
        const at::Tensor mask = largest(waiting, density_);
        item.value() += as_sent(waiting * mask) / static_cast<double>(gradients.size());
        waiting = waiting * (1 - mask) * (feedback_ ? 1 : 0);
      }
    }
    return seen;
  }

  const std::vector<TensorDict>& waiting() const { return waiting_; }

 private:
  std::vector<TensorDict> waiting_;  // of every rank
  double density_;
  bool feedback_;
};

TEST(TopK, IsItsReferenceOnSeveralRanks) {
  for (const comm::Layout& shape : shapes()) {
    for (const bool feedback : {true, false}) {
      SCOPED_TRACE(comm::describe(shape) + (feedback ? ", error feedback" : ""));
      TopKReference reference(shape.world_size(), 0.1, feedback);
      const auto ours = run_steps(shape, top_k_of({.density = 0.1, .error_feedback = feedback}));
      expect_steps(
          ours,
          trajectory(shape.world_size(),
                     [&](int64_t, const std::vector<TensorDict>& gradients) { return reference(gradients); }, {}));
    }
  }
}

/// Algorithms of arXiv 1712.01887 (appendix B): clipping of every rank's own gradient, momentum correction, momentum
/// factor masking. Vectors have momentum SGD on the mean.
class DgcReference {
 public:
  DgcReference(int ranks, double momentum, double clip)
      : momentum_(momentum),
        clip_(clip),
        of_means_(zeros_like(SmallProblem(0).initial_replica().weights.params)),
        u_(static_cast<size_t>(ranks), of_means_),
        v_(u_) {}

  TensorDict operator()(double density, const std::vector<TensorDict>& gradients) {
    std::vector<TensorDict> clipped;
    for (const auto& own : gradients) clipped.push_back(clipped_by_norm(own));
    TensorDict seen = means_of(clipped);
    for (auto& item : seen) {
      if (item.value().dim() == 1) {
        of_means_[item.key()] = momentum_ * of_means_[item.key()] + item.value();
        item.value() = of_means_[item.key()];
      } else {
        item.value() = mean_of_sent(item.key(), density, clipped);
      }
    }
    return seen;
  }

  const std::vector<TensorDict>& velocity() const { return u_; }
  const std::vector<TensorDict>& waiting() const { return v_; }

 private:
  /// N^(-1/2) of the threshold for each of N ranks: section 3.2.
  TensorDict clipped_by_norm(const TensorDict& gradients) const {
    double squares = 0;
    for (const auto& gradient : gradients) squares += gradient.value().square().sum().item<double>();
    const double threshold = clip_ / std::sqrt(static_cast<double>(u_.size()));
    const double scale = clip_ > 0 && std::sqrt(squares) > threshold ? threshold / std::sqrt(squares) : 1;
    TensorDict clipped;
    for (const auto& gradient : gradients) clipped.insert(gradient.key(), gradient.value() * scale);
    return clipped;
  }

  at::Tensor mean_of_sent(const std::string& name, double density, const std::vector<TensorDict>& gradients) {
    at::Tensor sum = at::zeros_like(gradients[0][name]);
    for (size_t rank = 0; rank < gradients.size(); ++rank) {
      at::Tensor &u = u_[rank][name], &v = v_[rank][name];
      u = momentum_ * u + gradients[rank][name];
      v = v + u;
      const at::Tensor mask = largest(v, density);
      sum += as_sent(v * mask);
      v = v * (1 - mask);
      u = u * (1 - mask);
    }
    return sum / static_cast<double>(gradients.size());
  }

  double momentum_, clip_;
  TensorDict of_means_;            // momentum of vectors
  std::vector<TensorDict> u_, v_;  // of every rank: momentum; what waits
};

TEST(Dgc, IsItsPapersAlgorithmOnSeveralRanks) {
  const double densities[] = {1.0 / 4, 1.0 / 16, 1.0 / 64};  // the paper's warm-up: 75 %, 93.75 %, 98.4375 % stay
  const GradientRun run{.momentum = 0};
  for (const comm::Layout& shape : shapes()) {
    for (const double clip : {0.0, 8.0}) {
      SCOPED_TRACE(comm::describe(shape) + (clip > 0 ? ", clipped" : ""));
      TopKOptions options{.density = densities[2], .dgc = true};
      options.dgc_options = {.momentum = 0.8, .warmup_steps = 2, .clip = clip};
      DgcReference reference(shape.world_size(), 0.8, clip);
      const Combine combine = [&](int64_t step, const std::vector<TensorDict>& gradients) {
        return reference(densities[std::min<int64_t>(step, 3) - 1], gradients);
      };
      const auto ours = run_steps(shape, top_k_of(options), run);
      expect_steps(ours, trajectory(shape.world_size(), combine, run));
      expect_kept(ours, "velocity/", reference.velocity());
      expect_kept(ours, "rest/", reference.waiting());
    }
  }
}

/// Algorithms 1 and 2 of arXiv 1905.13727, the error being what the aggregate leaves out, as in the authors' code. Any
/// orthonormal basis gives the same result.
class PowerSgdReference {
 public:
  PowerSgdReference(int ranks, int64_t start_after, const TensorDict& first_factors)
      : start_after_(start_after), q_(clones(first_factors)), errors_(static_cast<size_t>(ranks)) {
    const TensorDict theta = SmallProblem(0).initial_replica().weights.params;
    for (auto& own : errors_) {
      for (const auto& name : q_.keys()) own.insert(name, at::zeros_like(as_matrix(theta[name])));
    }
  }

  TensorDict operator()(int64_t step, const std::vector<TensorDict>& gradients) {
    TensorDict seen = means_of(gradients);
    if (step <= start_after_) return seen;
    for (auto& q : q_) {
      std::vector<at::Tensor> matrices;
      for (size_t rank = 0; rank < gradients.size(); ++rank) {
        matrices.push_back(as_matrix(gradients[rank][q.key()]) + errors_[rank][q.key()]);
      }
      const at::Tensor mean = at::stack(matrices).mean(0);
      const at::Tensor p = std::get<0>(at::linalg_qr(at::mm(mean, q.value())));
      q.value() = at::mm(mean.t(), p);
      const at::Tensor product = at::mm(p, q.value().t());
      for (size_t rank = 0; rank < gradients.size(); ++rank) errors_[rank][q.key()] = matrices[rank] - product;
      seen[q.key()] = product.view(seen[q.key()].sizes());
    }
    return seen;
  }

  const std::vector<TensorDict>& errors() const { return errors_; }

 private:
  static at::Tensor as_matrix(const at::Tensor& tensor) { return tensor.reshape({tensor.size(0), -1}); }

  int64_t start_after_;
  TensorDict q_;
  std::vector<TensorDict> errors_;  // of every rank
};

/// The factors a strategy starts from, by name of the tensor.
TensorDict factors_of(const Strategy& strategy) {
  TensorDict factors;
  for (const auto& item : strategy.state().global) {
    if (item.key().starts_with("q/")) factors.insert(item.key().substr(2), item.value().clone());
  }
  return factors;
}

TEST(PowerSgd, IsItsPapersAlgorithmOnSeveralRanks) {
  // in halves at most: r (rows + columns) of 33, 41 and 24 against 162, 180 and 80 numbers
  const std::vector<std::vector<std::string>> factored{{"first", "second", "linear"}, {"first", "second"}};
  for (const comm::Layout& shape : shapes()) {
    for (const int64_t rank : {1, 2}) {
      for (const int64_t start_after : {0, 2}) {
        SCOPED_TRACE(comm::describe(shape) + ", r = " + std::to_string(rank));
        TensorDict first_factors;
        const Make make = [&](Replica& replica, comm::Hierarchy& ranks) {
          auto strategy = make_powersgd(
              replica, ranks, {.reporting = kEightSteps, .rank = rank, .start_after = start_after, .seed = 5});
          if (ranks.layout.rank == 0) first_factors = factors_of(*strategy);
          return strategy;
        };
        const auto ours = run_steps(shape, make);
        ASSERT_EQ(first_factors.keys(), factored[static_cast<size_t>(rank - 1)]);
        PowerSgdReference reference(shape.world_size(), start_after, first_factors);
        expect_steps(ours, trajectory(shape.world_size(), std::ref(reference), {}));
        expect_kept(ours, "rest/", reference.errors());
      }
    }
  }
}

constexpr Reporting kThreeExchanges{.steps = 3, .total_steps = 8};  // the last one after two steps

/// The ranks whose gradients a rank averages in a step.
using Peers = std::function<std::vector<int>(int64_t step, int rank)>;

/// Local SGD, whose steps see the mean gradients of a rank's peers. `overlap`: an exchange, but for the first and the
/// last one, comes back so many steps after it was sent, and not in the last one.
void expect_local_sgd(const comm::Layout& shape, const Make& make, const Peers& peers, int64_t overlap = 0) {
  SCOPED_TRACE(comm::describe(shape));
  const auto ours = run_steps(shape, make, {.states = overlap == 0});
  const auto problems = problems_of(shape.world_size());
  std::vector<TensorDict> theta, velocity;
  for (size_t rank = 0; rank < problems.size(); ++rank) {
    theta.push_back(problems[0].initial_replica().weights.params);
    velocity.push_back(zeros_like(theta.back()));
  }
  const int64_t total = kThreeExchanges.total_steps;
  std::vector<TensorDict> sent;
  for (int64_t step = 1, k = 0, back_at = 0; step <= total; ++step) {
    std::vector<TensorDict> gradients;
    for (size_t rank = 0; rank < problems.size(); ++rank) gradients.push_back(problems[rank].gradients(theta[rank]));
    for (size_t rank = 0; rank < problems.size(); ++rank) {
      std::vector<TensorDict> seen;
      for (const int peer : peers(step, static_cast<int>(rank))) seen.push_back(gradients[static_cast<size_t>(peer)]);
      const TensorDict mean = means_of(seen);
      for (auto& item : theta[rank]) {
        sgd_step(item.value(), velocity[rank][item.key()], mean[item.key()], kMomentum, step);
      }
    }
    if (step % kThreeExchanges.steps == 0 || step == total) {
      sent.clear();
      for (const auto& own : theta) sent.push_back(clones(own));
      back_at = k == 0 || step == total ? step : std::min(step + overlap, total - 1);
    }
    const bool exchanged = step == back_at;
    if (exchanged) {
      ++k;
      const TensorDict mean = means_of(sent);
      for (size_t rank = 0; rank < theta.size(); ++rank) {
        for (auto& item : theta[rank]) item.value().add_(mean[item.key()]).sub_(sent[rank][item.key()]);
      }
    }
    for (size_t rank = 0; rank < problems.size(); ++rank) {
      const AfterStep& after = ours[rank][static_cast<size_t>(step - 1)];
      EXPECT_LT(worst_gap(after.theta, theta[rank]), 1e-9) << "rank " << rank << ", step " << step;
      EXPECT_EQ(after.exchange.exchanged, exchanged) << step;
      EXPECT_EQ(after.exchange.index, exchanged ? k : 0) << step;
    }
  }
}

std::vector<int> ranks_of_node(const comm::Layout& shape, int rank) {
  std::vector<int> ranks;
  for (int other = 0; other < shape.world_size(); ++other) {
    if (shape.node_of(other) == shape.node_of(rank)) ranks.push_back(other);
  }
  return ranks;
}

TEST(PostLocalSgd, AveragesGradientsFirstAndWeightsLater) {
  constexpr int64_t kSwitchAfter = 1;
  for (const comm::Layout& shape : shapes()) {
    expect_local_sgd(shape, post_local(kSwitchAfter, kThreeExchanges), [&](int64_t step, int rank) {
      if (step > kSwitchAfter * kThreeExchanges.steps) return std::vector{rank};
      return ranks_of_node({.node_sizes = {shape.world_size()}}, rank);
    });
  }
}

std::unique_ptr<Strategy> local_sgd_beside(int64_t overlap, Replica& replica, comm::Hierarchy& ranks) {
  HsadmmOptions options{.after_freeze = AfterFreeze::kAverage, .overlap = overlap};
  options.local.steps = kThreeExchanges.steps;
  options.local.total_steps = kThreeExchanges.total_steps;
  options.consensus.penalty.kappa = 0;
  return make_hsadmm(replica, ranks, options);
}

/// Of nodes that are one worker each.
Make local_sgd_of_workers(int64_t overlap) {
  return [overlap](Replica& replica, comm::Hierarchy& ranks) {
    return make_averaging_in_node(local_sgd_beside(overlap, replica, ranks), replica, ranks, kThreeExchanges,
                                  {.first = 200, .others = 400});
  };
}

TEST(WorkersOfSeveralRanks, StepByTheMeanGradientOfTheirRanks) {
  for (const comm::Layout& shape : shapes()) {
    for (const int64_t overlap : {0, 1, 2}) {
      SCOPED_TRACE(overlap);
      const Peers own_node = [&](int64_t, int rank) { return ranks_of_node(shape, rank); };
      expect_local_sgd(shape, local_sgd_of_workers(overlap), own_node, overlap);
    }
  }
}

TEST(WorkersOfSeveralRanks, OfOneNodeExchangeNothingBesideSteps) {
  comm::run_ranks(comm::Layout::even(1, 2), [](comm::Hierarchy& ranks) {
    Replica replica = SmallProblem(0).initial_replica();
    EXPECT_THROW(local_sgd_of_workers(1)(replica, ranks), std::invalid_argument);
    EXPECT_NO_THROW(local_sgd_of_workers(0)(replica, ranks));
  });
}

TEST(WorkersOfSeveralRanks, HaveTheSameBitsOnAllOfThemAndSendWhatOthersSend) {
  const auto shape = comm::Layout::even(2, 3);
  const auto each_by_itself =
      run_steps(shape, [](Replica& replica, auto& ranks) { return local_sgd_beside(0, replica, ranks); });
  for (const int64_t overlap : {0, 1}) {
    const auto steps = run_steps(shape, local_sgd_of_workers(overlap), {.states = overlap == 0});
    std::vector<int64_t> sent(2), sent_alone(2);  // by node, whose ranks share it out
    for (size_t rank = 0; rank < steps.size(); ++rank) {
      for (size_t step = 0; step < steps[rank].size(); ++step) {
        EXPECT_EQ(worst_gap(steps[rank][step].theta, steps[rank / 3 * 3][step].theta), 0) << rank << ", " << step;
        sent[rank / 3] += steps[rank][step].sent_to_nodes;
        sent_alone[rank / 3] += each_by_itself[rank][step].sent_to_nodes;
      }
    }
    EXPECT_EQ(sent, sent_alone) << overlap;
  }
}

}  // namespace
}  // namespace prunex::strategies
