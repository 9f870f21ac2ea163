// SCAFFOLD against its authors' algorithm, written down for all ranks in one process, and against what it sends.
#include "prunex/strategies/scaffold.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/strategies/gradient_runs.h"
#include "tests/strategies/rounded_mean.h"

namespace prunex::strategies {
namespace {

constexpr int64_t kScaffoldSteps = 8, kScaffoldLocalSteps = 3;  // exchanges after steps 3, 6 and 8

Make scaffold(ExchangeOptions exchange = {}) {
  const ScaffoldOptions options{
      .local = {.steps = kScaffoldLocalSteps, .total_steps = kScaffoldSteps, .learning_rate = learning_rate},
      .exchange = exchange};
  return [options](Replica& replica, comm::Hierarchy& ranks) { return make_scaffold(replica, ranks, options); };
}

std::vector<comm::Layout> scaffold_shapes() {
  return {comm::Layout::even(2, 1), comm::Layout::even(2, 2), comm::Layout{.node_sizes = {2, 1}}};
}

/// What all ranks have after an exchange.
struct ScaffoldExpected {
  TensorDict z, c;
  std::vector<TensorDict> c_node;
};

/// How a rank's control variate follows from its steps.
enum class ScaffoldControl {
  kOptionTwo,     // c_i - c + (z - theta) / (K eta), as the paper has it; eta changes here, so K eta is their sum
  kMeanGradient,  // of the steps, weighted by their rates
};

/// All ranks and their nodes, entry by entry as algorithm 1 says; all nodes take part, and the global step is 1.
class ScaffoldReference {
 public:
  ScaffoldReference(const comm::Layout& shape, ScaffoldControl control, double momentum)
      : shape_(shape), control_(control), momentum_(momentum) {
    for (int rank = 0; rank < shape.world_size(); ++rank) problems_.emplace_back(rank);
    now_.z = problems_[0].initial_replica().weights.params;
    now_.c = zeros_like(now_.z);
    for (int node = 0; node < shape.nodes(); ++node) now_.c_node.push_back(zeros_like(now_.z));
    for (size_t rank = 0; rank < problems_.size(); ++rank) velocities_.push_back(zeros_like(now_.z));
  }

  ScaffoldExpected exchange(int64_t first, int64_t last) {
    ScaffoldExpected next{zeros_like(now_.z), zeros_like(now_.z), {}};
    const auto ranks = static_cast<double>(shape_.world_size());
    for (int node = 0, rank = 0; node < shape_.nodes(); ++node) {
      next.c_node.push_back(zeros_like(now_.z));
      for (int local = 0; local < shape_.node_sizes[node]; ++local, ++rank) {
        const auto [theta, control] = local_steps(node, rank, first, last);
        for (const auto& item : theta) {
          next.z[item.key()] += item.value() / ranks;
          next.c_node[node][item.key()] += control[item.key()] / shape_.node_sizes[node];
        }
      }
      for (const auto& item : now_.c) {  // c + the mean of the nodes' changes, larger nodes counting for more
        const at::Tensor change = next.c_node[node][item.key()] - now_.c_node[node][item.key()];
        next.c[item.key()] += item.value() / shape_.nodes() + change * shape_.node_sizes[node] / ranks;
      }
    }
    return now_ = next;
  }

 private:
  std::pair<TensorDict, TensorDict> local_steps(int node, int rank, int64_t first, int64_t last) {
    TensorDict theta = clones(now_.z), control = zeros_like(theta);
    double rates = 0;
    for (int64_t step = first; step <= last; ++step) {
      const TensorDict gradients = problems_[rank].gradients(theta);
      rates += learning_rate(step);
      for (auto& item : theta) {
        const auto& name = item.key();
        control[name] += learning_rate(step) * gradients[name];
        const at::Tensor corrected = gradients[name] - now_.c_node[node][name] + now_.c[name];
        sgd_step(item.value(), velocities_[rank][name], corrected, momentum_, step);
      }
    }
    for (auto& item : control) {
      const auto& name = item.key();
      item.value() /= rates;
      if (control_ == ScaffoldControl::kOptionTwo) {
        item.value() = now_.c_node[node][name] - now_.c[name] + (now_.z[name] - theta[name]) / rates;
      }
    }
    return {theta, control};
  }

  const comm::Layout shape_;
  const ScaffoldControl control_;
  const double momentum_;
  std::vector<SmallProblem> problems_;
  std::vector<TensorDict> velocities_;
  ScaffoldExpected now_;
};

TensorDict with_prefix(const TensorDict& state, const std::string& prefix) {
  TensorDict part;
  for (const auto& item : state) {
    if (item.key().starts_with(prefix)) part.insert(item.key().substr(prefix.size()), item.value());
  }
  return part;
}

void expect_scaffold(ScaffoldControl control, double momentum) {
  for (const auto& shape : scaffold_shapes()) {
    const auto ours = run_steps(shape, scaffold(), {.steps = kScaffoldSteps, .momentum = momentum});
    ScaffoldReference reference(shape, control, momentum);
    for (int64_t first = 1; first <= kScaffoldSteps; first += kScaffoldLocalSteps) {
      const int64_t last = std::min(first + kScaffoldLocalSteps - 1, kScaffoldSteps);
      const ScaffoldExpected expected = reference.exchange(first, last);
      for (int node = 0, rank = 0; node < shape.nodes(); ++node) {
        for (int local = 0; local < shape.node_sizes[node]; ++local, ++rank) {
          const AfterStep& after = ours[rank][last - 1];
          EXPECT_TRUE(after.exchange.exchanged);
          EXPECT_LT(worst_gap(expected.z, after.theta), 1e-9) << describe(shape) << " rank " << rank;
          EXPECT_LT(worst_gap(expected.z, with_prefix(after.state, "z/")), 1e-9);
          EXPECT_LT(worst_gap(expected.c, with_prefix(after.state, "c/")), 1e-9);
          EXPECT_LT(worst_gap(expected.c_node[node], with_prefix(after.state, "c_node/")), 1e-9);
        }
      }
    }
  }
}

TEST(Scaffold, IsThePapersOptionTwoUnderPlainSgd) {
  expect_scaffold(ScaffoldControl::kOptionTwo, 0);
}

TEST(Scaffold, TakesMeanGradientsUnderMomentum) {
  expect_scaffold(ScaffoldControl::kMeanGradient, kMomentum);
}

// There is nothing to correct: c is c_node.
TEST(Scaffold, OnOneNodeIsLocalSgd) {
  const auto ours = run_steps(comm::Layout::even(1, 3), scaffold(), {.steps = kScaffoldSteps});
  HsadmmOptions means{.after_freeze = AfterFreeze::kAverage};
  means.local = {.steps = kScaffoldLocalSteps, .total_steps = kScaffoldSteps};
  means.consensus.penalty.kappa = 0;
  const auto local =
      run_steps(comm::Layout::even(1, 3),
                [means](Replica& replica, comm::Hierarchy& ranks) { return make_hsadmm(replica, ranks, means); },
                {.steps = kScaffoldSteps});
  EXPECT_LT(worst_gap(ours[0].back().theta, local[0].back().theta), 1e-12);
}

constexpr int64_t kScaffoldNumbers = 6 * 27 + 5 * 36 + 4 * 20 + 6 + 7, kScaffoldStatistics = 6;  // tests/groups.h

/// What three nodes of two ranks send in an exchange.
int64_t scaffold_bytes(ExchangeOptions exchange) {
  int64_t bytes = 0;
  for (const auto& rank :
       run_steps(comm::Layout::even(3, 2), scaffold(exchange), {.steps = kScaffoldSteps, .type = at::kFloat})) {
    EXPECT_EQ(rank[0].sent_to_nodes, 0);
    bytes += rank[kScaffoldLocalSteps - 1].sent_to_nodes;
  }
  return bytes;
}

// 2 (M - 1) of the weights, the control variates and, with fp32, batch norm's statistics.
TEST(Scaffold, SendsControlVariatesBesideTheWeights) {
  EXPECT_EQ(scaffold_bytes({}), 2 * 2 * 4 * (2 * kScaffoldNumbers + kScaffoldStatistics));
  EXPECT_EQ(scaffold_bytes({.form = ExchangeForm::kLeader}), 2 * 2 * 4 * (2 * kScaffoldNumbers + kScaffoldStatistics));
  EXPECT_EQ(scaffold_bytes({.payload = Payload::kBf16}), 2 * 2 * 2 * 2 * kScaffoldNumbers);
}

// Over many exchanges what rounding leaves out is made up for.
TEST(Scaffold, StaysNearItselfWithRoundedMessages) {
  const GradientRun run{.steps = kScaffoldSteps, .type = at::kFloat};
  const auto exact = run_steps(comm::Layout::even(2, 2), scaffold(), run);
  const auto rounded = run_steps(comm::Layout::even(2, 2), scaffold({.payload = Payload::kBf16}), run);
  const double gap = worst_gap(exact[0].back().theta, rounded[0].back().theta);
  EXPECT_GT(gap, 0);
  EXPECT_LT(gap, 0.02);
  EXPECT_EQ(worst_gap(rounded[0].back().theta, rounded[3].back().theta), 0);
}

// Control variates are made anew in every exchange: what a message has left out is in the next one already.
TEST(Scaffold, MakesUpOnceForWhatMessagesLeaveOut) {
  for (const auto& shape : {comm::Layout::even(2, 2), comm::Layout::even(3, 1)}) {
    const auto ours =
        run_steps(shape, scaffold({.payload = Payload::kBf16}), {.steps = kScaffoldSteps, .type = at::kFloat});
    const TensorDict like = zeros_like(with_prefix(ours[0].back().state, "c/"));
    TensorDict alive, c = like;
    for (const auto& item : like) alive.insert(item.key(), at::ones_like(item.value()));
    for (const int64_t step : {3, 6, 8}) {
      std::vector<TensorDict> changes;
      for (int node = 0; node < shape.nodes(); ++node) {
        TensorDict change;
        for (const auto& own : with_prefix(ours[shape.first_rank(node)][step - 1].state, "c_node/")) {
          change.insert(own.key(), own.value() - c[own.key()]);
        }
        changes.push_back(change);
      }
      const TensorDict mean = RoundedMean(shape, Payload::kBf16, like)(changes, alive);
      TensorDict expected;
      for (const auto& item : mean) expected.insert(item.key(), c[item.key()] + item.value());
      c = with_prefix(ours[0][step - 1].state, "c/");
      EXPECT_LT(worst_gap(expected, c), 1e-6) << describe(shape) << " step " << step;
    }
  }
}

void expect_equal_states(const AfterStep& a, const AfterStep& b, double tolerance) {
  for (const auto& item : a.state) {
    EXPECT_TRUE(at::allclose(item.value(), b.state[item.key()], tolerance, tolerance)) << item.key();
  }
}

TEST(Scaffold, MakesAnExchangeAgainThatALostRankEnded) {
  for (const Payload payload : {Payload::kFp32, Payload::kBf16}) {
    GradientRun run{.steps = kScaffoldSteps, .type = at::kFloat, .only_exchanges = true};
    const auto once = run_steps(comm::Layout::even(2, 2), scaffold({.payload = payload}), run);
    run.times = 3;
    const auto again = run_steps(comm::Layout::even(2, 2), scaffold({.payload = payload}), run);
    for (size_t rank = 0; rank < once.size(); ++rank) {
      for (size_t step = 0; step < once[rank].size(); ++step)
        expect_equal_states(once[rank][step], again[rank][step], 0);
    }
  }
}

TEST(Scaffold, WhoHasJustJoinedCountsForNothing) {
  const GradientRun run{.steps = kScaffoldLocalSteps};
  const auto two = run_steps(comm::Layout::even(2, 2), scaffold(), run);
  const auto three = run_steps(comm::Layout::even(3, 2), scaffold(), {.steps = kScaffoldLocalSteps, .newcomers = 1});
  expect_equal_states(two[0].back(), three[0].back(), 1e-12);
  EXPECT_EQ(worst_gap(three[0].back().theta, three[5].back().theta), 0);
  for (const auto& item : three[5].back().state) {
    if (!item.key().starts_with("c/")) continue;
    EXPECT_TRUE(three[5].back().state["c_node/" + item.key().substr(2)].equal(item.value())) << item.key();
    EXPECT_GT(item.value().abs().max().item<double>(), 0) << item.key();
  }
}

}  // namespace
}  // namespace prunex::strategies
