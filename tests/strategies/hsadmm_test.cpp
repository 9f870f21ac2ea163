// H-SADMM over real connections against the one-process reference, and what must hold whatever the settings.
#include "prunex/strategies/hsadmm/hsadmm.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "prunex/comm/connect.h"
#include "prunex/sparsity/projection.h"
#include "tests/groups.h"
#include "tests/strategies/reference.h"
#include "tests/strategies/small_problem.h"
#include "tests/units.h"

namespace prunex::strategies {
namespace {

using comm::Layout;

const std::vector<Layout> kShapes{Layout::even(1, 1), Layout::even(1, 4), Layout::even(2, 2),
                                  Layout::even(4, 1), Layout::even(3, 2), {.node_sizes = {2, 1}}};

void expect_close(const at::Tensor& ours, const at::Tensor& theirs, const std::string& what) {
  EXPECT_LE((ours - theirs).norm().item<double>(), 1e-10 * std::max(1.0, theirs.norm().item<double>())) << what;
}

class ReferenceComparison {
 public:
  ReferenceComparison(const Layout& shape, const HsadmmOptions& options) : shape_(shape), reference_(options, shape) {}

  void compare(const std::vector<History>& histories) {
    const int64_t exchanges = static_cast<int64_t>(histories[0].size()) - 1;  // the last entry is after finish()
    for (int64_t k = 0; k < exchanges && !testing::Test::HasFailure(); ++k) {
      reference_.iterate();
      for (int i = 0; i < shape_.nodes(); ++i) {
        for (int j = 0; j < shape_.node_sizes[i]; ++j) {
          const int rank = shape_.first_rank(i) + j;
          SCOPED_TRACE("exchange " + std::to_string(k + 1) + " rank " + std::to_string(rank));
          compare(histories[rank][k], i, j);
        }
      }
    }
  }

 private:
  void compare(const Snapshot& ours, int i, int j) {
    EXPECT_EQ(ours.exchange.frozen, reference_.frozen());
    EXPECT_EQ(ours.exchange.mask_changes, reference_.mask_changes());
    EXPECT_EQ(sparsity::count_changes(ours.masks, reference_.masks()), 0);
    const auto& rank = reference_.rank(i, j);
    for (const auto& z : reference_.z().params) {
      expect_close(ours.state["z/" + z.key()], z.value(), "z " + z.key());
      expect_close(ours.theta[z.key()], rank.replica.weights.params[z.key()], "theta " + z.key());
      expect_close(ours.momentum[z.key()], rank.replica.optimizer["momentum"][z.key()], "momentum " + z.key());
    }
    for (const auto& buffer : reference_.z().buffers) {
      expect_close(ours.state["z/" + buffer.key()].to(at::kDouble), buffer.value().to(at::kDouble), buffer.key());
      expect_close(ours.buffers[buffer.key()].to(at::kDouble), buffer.value().to(at::kDouble), buffer.key());
    }
    compare_duals(ours, i, rank);
  }

  void compare_duals(const Snapshot& ours, int i, const Reference::Rank& rank) {
    size_t held = 0;
    for (const auto& name : reference_.z().params.keys()) {
      EXPECT_EQ(ours.state.find("u/" + name) != nullptr, reference_.in_admm(name)) << name;
      if (!reference_.in_admm(name)) continue;
      expect_close(ours.state["u/" + name], rank.u[name], "u " + name);
      expect_close(ours.state["v/" + name], reference_.node(i).v[name], "v " + name);
      expect_close(ours.state["z_node/" + name], reference_.node(i).z_node[name], "z_node " + name);
      EXPECT_NEAR(ours.next_rho1[held], reference_.rho().at(name).rho1, 1e-12) << name;
      const auto& [key, residuals] = ours.exchange.residuals[held++];
      const auto& want = reference_.residuals().at(name);
      EXPECT_EQ(key, name);
      EXPECT_NEAR(residuals.r_intra, want.r_intra, 1e-10) << name;
      EXPECT_NEAR(residuals.s_intra, want.s_intra, 1e-10) << name;
      EXPECT_NEAR(residuals.r_inter, want.r_inter, 1e-10) << name;
      EXPECT_NEAR(residuals.s_inter, want.s_inter, 1e-10) << name;
    }
    EXPECT_EQ(ours.next_rho1.size(), held);
    EXPECT_EQ(ours.exchange.residuals.size(), held);
  }

  Layout shape_;
  Reference reference_;
};

void expect_equal_to_reference(const Layout& shape, const HsadmmOptions& options, const std::string& what) {
  SCOPED_TRACE(what + " on " + comm::describe(shape));
  ReferenceComparison(shape, options).compare(run_on_ranks(shape, options));
}

TEST(Hsadmm, EqualsItsOneProcessReferenceWithTheDefaults) {
  for (const Layout& shape : kShapes) expect_equal_to_reference(shape, default_options(), "defaults");
}

TEST(Hsadmm, EqualsItsOneProcessReferenceInThePapersForm) {
  for (const Layout& shape : kShapes) expect_equal_to_reference(shape, paper_options(), "paper");
}

TEST(Hsadmm, EqualsItsOneProcessReferenceWithEveryOtherSetting) {
  HsadmmOptions options = default_options();
  options.masks.groups = tests::groups_of_every_kind(0.5);
  options.masks.rule = MaskRule::kUnion;
  options.after_freeze = AfterFreeze::kAverage;
  options.consensus.penalty = {.rule = admm::PenaltyRule::kGeometric, .rho1 = 0.2, .rho2 = 0.3};
  options.consensus.lambda = 0.05;
  expect_equal_to_reference(Layout::even(2, 2), options, "union, geometric, lambda");
  options.masks.mask_theta = false;
  options.consensus.start_from = StartFrom::kTheta;
  options.after_freeze = AfterFreeze::kAdmm;
  options.consensus.penalty.rule = admm::PenaltyRule::kFixed;
  expect_equal_to_reference(Layout::even(2, 2), options, "theta unmasked, fixed");
  options = default_options();
  options.outer.from = 2;
  options.consensus.aux = AuxTensors::kAdmm;
  expect_equal_to_reference(Layout::even(2, 2), options, "outer step before the freeze");
  options = default_options();
  options.consensus.penalty.kappa = 0;
  expect_equal_to_reference(Layout::even(2, 2), options, "no ADMM");
  options.masks.groups.clear();
  expect_equal_to_reference(Layout::even(2, 2), options, "no ADMM and no groups");
}

// docs/algorithm.md, "One node": rho2 is 0 and there is nothing to average.
TEST(Hsadmm, FlatConsensusOfTwoNodesIsOneNodeOfTheReference) {
  for (HsadmmOptions options : {default_options(), paper_options()}) {
    options.consensus.flat = true;
    ReferenceComparison(Layout::even(1, 4), options).compare(run_on_ranks(2, 2, options));
  }
}

// Norms by a scorer of its own are those that ranks share the work of: it is given the whole candidate of the node.
TEST(Hsadmm, AScorerSeesTheWholeCandidateOfItsNode) {
  for (const MaskRule rule : {MaskRule::kJoint, MaskRule::kUnion}) {
    HsadmmOptions options = default_options();
    options.masks.rule = rule;
    options.masks.score = [groups = options.masks.groups](const Weights& candidate, comm::Communicator&) {
      return sparsity::unit_scores(groups, candidate.params);
    };
    for (const Layout& shape : {Layout::even(2, 2), Layout::even(3, 2)})
      expect_equal_to_reference(shape, options, "own scorer");
  }
}

TEST(Hsadmm, AScorerDecidesWhoSurvives) {
  for (const int64_t freeze_after : {int64_t{3}, kNever}) {
    HsadmmOptions options = default_options();
    options.masks.freeze_after = freeze_after;
    options.masks.score = [groups = options.masks.groups](const Weights&, comm::Communicator& node) {
      std::vector<at::Tensor> scores;
      for (const auto& group : groups) scores.push_back(at::arange(group.size, at::kDouble) * node.size());
      return scores;
    };
    for (const auto& history : run_on_ranks(Layout{.node_sizes = {2, 1}}, options)) {
      for (const auto& mask : history.back().masks) {
        const int64_t size = mask.value().numel(), kept = mask.value().sum().item<int64_t>();
        EXPECT_LT(kept, size);
        EXPECT_TRUE(mask.value().slice(0, size - kept).all().item<bool>()) << mask.key();
      }
    }
  }
}

/// Long enough for several mask changes, never frozen.
HsadmmOptions restless(MaskRule rule) {
  HsadmmOptions options = default_options();
  options.masks.groups = tests::groups_of_every_kind(0.4);
  options.masks.keep.end = 8;
  options.masks.rule = rule;
  options.masks.freeze_after = kNever;
  options.local.total_steps = 36;
  options.consensus.penalty = {.rule = admm::PenaltyRule::kResidual, .rho1 = 0.3, .rho2 = 0.2, .mu = 1.5};
  options.consensus.aux = AuxTensors::kAdmm;
  return options;
}

TEST(Hsadmm, KeepsTheSumOfTheNodesDualsAtZeroThroughMaskChanges) {
  for (const auto rule : {MaskRule::kJoint, MaskRule::kUnion}) {
    const auto histories = run_on_ranks(3, 2, restless(rule));
    int64_t changes = 0;
    double largest = 0;
    for (size_t k = 0; k + 1 < histories[0].size(); ++k) {
      changes += histories[0][k].exchange.mask_changes;
      for (const auto& name : histories[0][k].theta.keys()) {
        const auto v = [&](int node) { return histories[2 * node][k].state["v/" + name]; };
        EXPECT_LE((v(0) + v(1) + v(2)).abs().max().item<double>(), 1e-12) << name << " after exchange " << k + 1;
        largest = std::max(largest, v(0).abs().max().item<double>());
      }
    }
    EXPECT_GT(changes, 20);
    EXPECT_GT(largest, 0.1);
  }
}

TEST(Hsadmm, LeavesEveryRankWithTheSameBits) {
  for (const auto& options : {default_options(), paper_options(), restless(MaskRule::kUnion)}) {
    const auto histories = run_on_ranks(3, 2, options);
    for (size_t rank = 1; rank < histories.size(); ++rank) {
      ASSERT_EQ(histories[rank].size(), histories[0].size());
      for (size_t k = 0; k < histories[0].size(); ++k) {
        const Snapshot &ours = histories[rank][k], &first = histories[0][k];
        for (const auto& item : first.state) {
          if (!item.key().starts_with("z/")) continue;
          EXPECT_TRUE(at::equal(ours.state[item.key()], item.value())) << item.key() << " rank " << rank << " " << k;
        }
        for (const auto& mask : first.masks) EXPECT_TRUE(at::equal(ours.masks[mask.key()], mask.value()));
        EXPECT_EQ(ours.next_rho1, first.next_rho1);
        EXPECT_EQ(ours.exchange.rho2, first.exchange.rho2);
      }
    }
  }
}

/// Units of a group with a single entry that is not zero.
int64_t units_in_use(const sparsity::Group& group, const TensorDict& z) {
  at::Tensor in_use = at::zeros({group.size}, at::kBool);
  for (const auto& slice : group.slices) {
    const at::Tensor& tensor = z["z/" + slice.tensor];
    const at::Tensor units = tests::unit_of_entries(group, slice, tensor);
    for (int64_t unit = 0; unit < group.size; ++unit) {
      if (tensor.ne(0).logical_and(units.eq(unit)).any().item<bool>()) in_use[unit] = true;
    }
  }
  return in_use.sum().item<int64_t>();
}

TEST(Hsadmm, HasExactlyKUnitsPerGroupFromTheFreezeOn) {
  for (const auto rule : {MaskRule::kJoint, MaskRule::kUnion}) {
    for (const auto after : {AfterFreeze::kNesterov, AfterFreeze::kAverage, AfterFreeze::kAdmm}) {
      HsadmmOptions options = default_options();  // coupled, 6 units, and flat, 4, half of each: no shared tensors
      options.masks.rule = rule;
      options.after_freeze = after;
      const auto histories = run_on_ranks(2, 2, options);
      for (const Snapshot& snapshot : histories[3]) {
        if (!snapshot.exchange.frozen) continue;
        EXPECT_EQ(units_in_use(options.masks.groups[0], snapshot.state), 3);
        EXPECT_EQ(units_in_use(options.masks.groups[1], snapshot.state), 2);
        EXPECT_EQ(sparsity::count_alive(snapshot.masks), 5);
      }
    }
  }
}

TEST(Hsadmm, EndsInTheConstraintSetWithoutAFreeze) {
  for (const auto rule : {MaskRule::kJoint, MaskRule::kUnion}) {
    HsadmmOptions options = default_options();
    options.masks.rule = rule;
    options.masks.keep.end = 100;  // the ramp is nowhere near its end
    options.masks.freeze_after = kNever;
    const auto histories = run_on_ranks(2, 2, options);
    const History& history = histories[1];
    EXPECT_GT(sparsity::count_alive(history[history.size() - 2].masks), 5);
    for (size_t g = 0; g < 2; ++g)
      EXPECT_EQ(units_in_use(options.masks.groups[g], history.back().state), g == 0 ? 3 : 2);
    EXPECT_EQ(sparsity::count_alive(history.back().masks), 5);
    for (const auto& item : history.back().state) {
      if (item.key().starts_with("z/")) {
        EXPECT_TRUE(at::equal(item.value(), histories[2].back().state[item.key()])) << item.key();
      }
    }
  }
}

// The exchange of step 6 lands after step 8.
TEST(Hsadmm, DoesNotFinishWhileAnExchangeIsOnItsWay) {
  HsadmmOptions options = default_options();
  options.consensus.penalty.kappa = 0;
  options.masks.freeze_after = 0;
  options.overlap = 2;
  comm::run_ranks(2, 1, [&](comm::Hierarchy& ranks) {
    const SmallProblem problem(ranks.layout.rank);
    Replica replica = problem.initial_replica();
    const auto strategy = make_hsadmm(replica, ranks, options);
    for (int64_t step = 1; step <= 8; ++step) {
      problem.train(replica, strategy->local_terms(), step, step);
      strategy->after_update(replica, step);
      if (step == 6 || step == 7) {
        EXPECT_THROW(strategy->finish(), c10::Error) << step;
      }
    }
    EXPECT_NO_THROW(strategy->finish());
  });
}

TEST(Hsadmm, IntersectsOverlappingGroupsEachWithItsOwnCount) {
  HsadmmOptions options = default_options();
  options.masks.groups = tests::groups_of_every_kind(0.5);
  const Snapshot last = run_on_ranks(2, 2, options)[0].back();
  for (const auto& group : options.masks.groups) {
    EXPECT_EQ(last.masks[group.name].sum().item<int64_t>(), sparsity::units_kept(group.size, 0.5)) << group.name;
  }
  for (const auto& theta : last.theta) {
    const at::Tensor& z = last.state["z/" + theta.key()];
    const at::Tensor alive = tests::alive_entries(options.masks.groups, last.masks, theta.key(), z);
    EXPECT_TRUE(at::equal(z.ne(0), alive.ne(0))) << theta.key();
  }
}

TEST(Hsadmm, GoesOnTheSameOnWhatACutLeaves) {
  for (const auto& [after, overlap] : std::vector<std::pair<AfterFreeze, int64_t>>{{AfterFreeze::kNesterov, 0},
                                                                                   {AfterFreeze::kAverage, 0},
                                                                                   {AfterFreeze::kAdmm, 0},
                                                                                   {AfterFreeze::kNesterov, 2}}) {
    HsadmmOptions options = default_options();
    options.after_freeze = after;
    options.overlap = overlap;
    const auto whole = run_on_ranks(2, 2, options);
    const auto small = run_on_ranks(2, 2, options, LocalPhase::kTrainAndCut);
    const Replica start = SmallProblem(0).initial_replica();
    const auto cut = cut_of(options, whole[0].back().masks, start.weights);
    for (size_t rank = 0; rank < 4; ++rank) {
      const TensorDict &ours = small[rank].back().state, &theirs = whole[rank].back().state;
      for (const auto& name : start.weights.params.keys()) {
        for (const std::string room : {"z/", "u/", "v/", "z_node/", "outer/"}) {
          ASSERT_EQ(ours.find(room + name) == nullptr, theirs.find(room + name) == nullptr) << room + name;
          if (ours.find(room + name) == nullptr) continue;
          const at::Tensor left = sparsity::slice(theirs[room + name], cut.tensors.at(name), name);
          ASSERT_EQ(ours[room + name].sizes(), left.sizes()) << room + name;
          expect_close(ours[room + name], left, room + name);
        }
      }
      EXPECT_EQ(ours["z/first"].size(0), 3);
      EXPECT_EQ(ours["z/linear"].size(1), 12);  // 2 of 4 units of 4 columns, and the 4 of none
    }
  }
}

TEST(Hsadmm, FreezesWhenMasksWereStableAndTheRampIsOver) {
  const auto frozen_at = [](int64_t stable_for, int64_t ramp_end) {
    HsadmmOptions options = default_options();
    options.masks.groups = {tests::groups_of_every_kind(1.0)[0]};  // nothing to choose: masks never change
    options.masks.keep.end = ramp_end;
    options.masks.freeze_after = kNever;
    options.masks.freeze_when_stable = stable_for;
    options.local.total_steps = 36;
    const auto history = run_on_ranks(1, 2, options)[0];
    for (const Snapshot& snapshot : history) {
      if (snapshot.exchange.frozen) return snapshot.exchange.index;
    }
    return kNever;
  };
  // in exchange 1 there are no masks yet, 2 … 5 change nothing, so the sixth freezes; with a longer ramp its end does;
  // 0 is off
  EXPECT_EQ(frozen_at(4, 2), 6);
  EXPECT_EQ(frozen_at(4, 9), 9);
  EXPECT_EQ(frozen_at(0, 2), kNever);
}

TEST(Hsadmm, StopsWhenTheResidualsAreBelowTheTolerance) {
  for (const Layout& shape : {Layout::even(1, 2), Layout::even(2, 2)}) {
    HsadmmOptions options = default_options();
    options.masks.groups.clear();
    options.masks.freeze_after = kNever;  // duals to the end
    options.consensus.aux = AuxTensors::kAdmm;
    options.consensus.penalty = {.rule = admm::PenaltyRule::kFixed, .rho1 = 0.5, .rho2 = 0.5};
    options.local.steps = 1;
    options.local.total_steps = 200;
    options.consensus.tolerance = 1e-3;  // what the command line sets
    const auto history = run_on_ranks(shape, options, LocalPhase::kMinimise)[0];
    const Exchange& last = history[history.size() - 2].exchange;
    EXPECT_TRUE(last.converged) << shape.nodes();
    EXPECT_LT(last.index, 200) << shape.nodes();
    EXPECT_GT(last.index, 5) << shape.nodes();
  }
}

}  // namespace
}  // namespace prunex::strategies
