// Rounded messages between nodes against docs/strategies.md, "Rounded payloads", for all nodes in one process: which
// change is rounded where, to what, and what is kept of it; also where masks move, freeze and are cut, and with duals.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "prunex/comm/connect.h"
#include "prunex/strategies/hsadmm/hsadmm.h"
#include "tests/groups.h"
#include "tests/strategies/reference.h"
#include "tests/strategies/small_problem.h"

namespace prunex::strategies {
namespace {

constexpr double kTolerance = 1e-5;

/// One exchange of one rank against the reference, which is never cut.
class RankComparison {
 public:
  RankComparison(const Snapshot& ours, const Reference& reference, int node, int j, const sparsity::Cut* cut)
      : ours_(ours), reference_(reference), node_(node), rank_(reference.rank(node, j)), cut_(cut) {}

  void compare() const {
    EXPECT_EQ(ours_.exchange.frozen, reference_.frozen());
    EXPECT_EQ(sparsity::count_changes(ours_.masks, reference_.masks()), 0);
    expect_close(rank_.replica.weights.params, ours_.theta, "");
    expect_close(rank_.replica.optimizer["momentum"], ours_.momentum, "");
    expect_close(reference_.z().params, ours_.state, "z/");
    expect_close(reference_.rounded_mean().sent(node_), ours_.state, "feedback_sent/");
    expect_close(reference_.rounded_mean().returned(node_), ours_.state, "feedback_returned/");
    TensorDict statistic;
    statistic.insert("mean", rank_.replica.weights.buffers["mean"]);
    expect_close(statistic, ours_.buffers, "");
    compare_duals();
  }

 private:
  void compare_duals() const {
    TensorDict u, v, z_node;
    for (const auto& name : reference_.z().params.keys()) {
      EXPECT_EQ(ours_.state.find("u/" + name) != nullptr, reference_.in_admm(name)) << name;
      if (!reference_.in_admm(name)) continue;
      u.insert(name, rank_.u[name]);
      v.insert(name, reference_.node(node_).v[name]);
      z_node.insert(name, reference_.node(node_).z_node[name]);
    }
    expect_close(u, ours_.state, "u/");
    expect_close(v, ours_.state, "v/");
    expect_close(z_node, ours_.state, "z_node/");
  }

  void expect_close(const TensorDict& theirs, const TensorDict& ours, const std::string& room) const {
    for (const auto& item : theirs) {
      const at::Tensor& own = ours[room + item.key()];
      const at::Tensor left =
          cut_ ? sparsity::slice(item.value(), cut_->tensors.at(item.key()), item.key()) : item.value();
      ASSERT_EQ(own.sizes(), left.sizes()) << room << item.key();
      EXPECT_LT((own - left).abs().max().item<double>(), kTolerance) << room << item.key();
    }
  }

  const Snapshot& ours_;
  const Reference& reference_;
  int node_;
  const Reference::Rank& rank_;
  const sparsity::Cut* cut_;
};

/// Returns how many units changed sides in all.
int64_t expect_reference(const comm::Layout& shape, const HsadmmOptions& options,
                         LocalPhase phase = LocalPhase::kTrain) {
  const auto ours = run_on_ranks(shape, options, phase, at::kFloat);
  Reference reference(options, shape, at::kFloat);
  std::optional<sparsity::Cut> cut;
  int64_t changes = 0;
  for (size_t k = 0; k + 1 < ours[0].size() && !testing::Test::HasFailure(); ++k) {  // the last is after finish()
    if (reference.frozen() && phase == LocalPhase::kTrainAndCut) {
      cut = cut_of(options, reference.masks(), SmallProblem(0, at::kFloat).initial_replica().weights);
    }
    reference.iterate();
    changes += reference.mask_changes();
    for (int rank = 0; rank < shape.world_size(); ++rank) {
      SCOPED_TRACE("exchange " + std::to_string(k + 1) + ", rank " + std::to_string(rank));
      comm::Layout here = shape;
      here.rank = rank;
      RankComparison(ours[static_cast<size_t>(rank)][k], reference, here.node(), here.local_rank(),
                     cut ? &*cut : nullptr)
          .compare();
    }
  }
  return changes;
}

/// 3 local steps, 6 exchanges, the last one short; the last three of them with final masks, which keep everything. The
/// outer step multiplies by powers of two: a last bit that differs would now and then round to another number.
HsadmmOptions without_masks(Payload payload, int64_t outer_from) {
  HsadmmOptions options = default_options();
  options.masks.groups.clear();
  options.consensus.penalty.kappa = 0;
  options.after_freeze = AfterFreeze::kAverage;
  options.outer.from = outer_from;
  options.outer.rate = options.outer.momentum = 0.5;
  options.exchange.payload = payload;
  return options;
}

/// 9 exchanges, the last one short: masks ramp from the second to the fifth and freeze in the seventh.
HsadmmOptions with_masks(HsadmmOptions options, std::vector<sparsity::Group> groups) {
  options.masks.groups = std::move(groups);
  options.masks.keep = {.ramp = sparsity::KeepRamp::kCubic, .start = 2, .end = 5};
  options.masks.freeze_after = 6;
  options.local.total_steps = 26;
  return options;
}

/// Penalties that are powers of two, twice as large in every exchange, and for two ranks or one add up to another in
/// Eq. 9: none of it rounds.
HsadmmOptions with_duals(HsadmmOptions options, int ranks_per_node) {
  const double rho1 = 1.0 / 64;
  options.consensus.penalty = {
      .rule = admm::PenaltyRule::kGeometric, .rho1 = rho1, .rho2 = rho1 * ranks_per_node, .growth = 2};
  options.after_freeze = AfterFreeze::kAdmm;
  return options;
}

void expect_reference_everywhere(int64_t outer_from) {
  for (const comm::Layout& shape :
       {comm::Layout::even(2, 2), comm::Layout::even(3, 1), comm::Layout{.node_sizes = {2, 1}}}) {
    for (const Payload payload :
         {Payload::kBf16, Payload::kFp16, Payload::kInt8, Payload::kInt4, Payload::kInt2, Payload::kInt1}) {
      SCOPED_TRACE(comm::describe(shape) + ", " + name_of(payload));
      expect_reference(shape, without_masks(payload, outer_from));
    }
  }
}

TEST(RoundedExchange, OfLocalSgdIsItsReference) {
  expect_reference_everywhere(0);
}

TEST(RoundedExchange, OfDiLoCoIsItsReference) {
  expect_reference_everywhere(1);
}

const std::vector<Payload> kRounded{Payload::kBf16, Payload::kInt8, Payload::kInt2, Payload::kInt1};

/// Joint masks of coupled groups, which are cut.
void expect_reference_with_cut(const HsadmmOptions& options, const comm::Layout& shape) {
  EXPECT_GE(expect_reference(shape, with_masks(options, default_options().masks.groups), LocalPhase::kTrainAndCut), 5);
}

/// Every node its own masks, of groups of all kinds, which overlap.
void expect_reference_with_union(HsadmmOptions options, const comm::Layout& shape) {
  options.masks.rule = MaskRule::kUnion;
  EXPECT_GE(expect_reference(shape, with_masks(options, tests::groups_of_every_kind(0.5))), 8);
}

void expect_reference_with_masks(int64_t outer_from) {
  for (const comm::Layout& shape : {comm::Layout::even(2, 2), comm::Layout::even(3, 1)}) {
    for (const Payload payload : kRounded) {
      SCOPED_TRACE(comm::describe(shape) + ", " + name_of(payload));
      expect_reference_with_cut(without_masks(payload, outer_from), shape);
      expect_reference_with_union(without_masks(payload, outer_from), shape);
    }
  }
}

// What is dead neither travels nor is owed, and shares follow what is alive.
TEST(RoundedExchange, OfLocalSgdWithMasksIsItsReference) {
  expect_reference_with_masks(0);
}

TEST(RoundedExchange, OfDiLoCoWithMasksIsItsReference) {
  expect_reference_with_masks(1);
}

// v is cleared where the global masks are dead: rounded, its sum over nodes would not be zero there.
TEST(RoundedExchange, WithDualsIsItsReference) {
  for (const comm::Layout& shape : {comm::Layout::even(2, 2), comm::Layout::even(3, 1)}) {
    for (const Payload payload : kRounded) {
      SCOPED_TRACE(comm::describe(shape) + ", " + name_of(payload));
      const HsadmmOptions options = with_duals(without_masks(payload, 0), shape.node_sizes[0]);
      expect_reference_with_cut(options, shape);
      expect_reference_with_union(options, shape);
    }
  }
}

// The first message without v has what those before it have left out.
TEST(RoundedExchange, WithDualsThatEndIsItsReference) {
  for (const Payload payload : kRounded) {
    SCOPED_TRACE(name_of(payload));
    HsadmmOptions options = with_duals(without_masks(payload, 0), 2);
    options.after_freeze = AfterFreeze::kAverage;
    expect_reference_with_cut(options, comm::Layout::even(2, 2));
    expect_reference_with_union(options, comm::Layout::even(2, 2));
  }
}

/// 18,000 weights and 90 entries of a vector.
Replica wide_replica() {
  Replica replica;
  replica.weights.params.insert("first", at::ones({150, 100}));
  replica.weights.params.insert("second", at::ones({60, 50}));
  replica.weights.params.insert("bias", at::ones({90}));
  replica.optimizer.insert("momentum", zeros_like(replica.weights.params));
  return replica;
}

/// What every node sends to others in one exchange.
std::vector<int64_t> bytes_of_nodes(const comm::Layout& shape, Payload payload) {
  HsadmmOptions options = without_masks(payload, 0);
  options.local.steps = options.local.total_steps = 1;
  std::vector<int64_t> sent(static_cast<size_t>(shape.world_size())), nodes(static_cast<size_t>(shape.nodes()));
  comm::run_ranks(shape, [&](comm::Hierarchy& ranks) {
    Replica replica = wide_replica();
    make_hsadmm(replica, ranks, options)->after_update(replica, 1);
    sent[static_cast<size_t>(ranks.layout.rank)] = comm::moved_by_exchanges(ranks).sent_to_nodes;
  });
  for (int node = 0; node < shape.nodes(); ++node) {
    for (int rank = 0; rank < shape.node_sizes[static_cast<size_t>(node)]; ++rank) {
      nodes[static_cast<size_t>(node)] += sent[static_cast<size_t>(shape.first_rank(node) + rank)];
    }
  }
  return nodes;
}

// 2(M-1)/M R, R = n/8 + n/64 for int1, n/4 + n/64 for int2, and so on; a share may end within a block, and then needs a
// scale and a byte of codes more.
TEST(RoundedExchange, SendsTheFormulaBetweenThreeNodesOfTwoRanks) {
  constexpr double kWeights = 18000, kVectors = 90, kShares = 6;
  // a node that owns the vectors sends more than others, which shows where weights are small
  for (const auto& [payload, per_weight] :
       std::vector<std::pair<Payload, double>>{{Payload::kBf16, 2},
                                               {Payload::kFp16, 2},
                                               {Payload::kInt8, 1 + 1.0 / 64},
                                               {Payload::kInt4, 1.0 / 2 + 1.0 / 64},
                                               {Payload::kInt2, 1.0 / 4 + 1.0 / 64},
                                               {Payload::kInt1, 1.0 / 8 + 1.0 / 64}}) {
    const double R = per_weight * kWeights + 2 * kVectors;
    const auto nodes = bytes_of_nodes(comm::Layout::even(3, 2), payload);
    const auto total = static_cast<double>(nodes[0] + nodes[1] + nodes[2]);
    EXPECT_GE(total, 3 * 4.0 / 3 * R) << name_of(payload);
    EXPECT_LE(total, 3 * 4.0 / 3 * (R + 3 * kShares)) << name_of(payload);
    const double uneven = payload == Payload::kInt1 ? 0.05 : 0.03;
    for (const int64_t sent : nodes) {
      EXPECT_NEAR(static_cast<double>(sent), 4.0 / 3 * R, uneven * R) << name_of(payload);
    }
  }
}

}  // namespace
}  // namespace prunex::strategies
