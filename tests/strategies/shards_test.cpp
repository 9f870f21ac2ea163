// Who keeps which rows, and that it does not matter: sharded, led, on sites or on uneven nodes, z is the same.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "prunex/comm/connect.h"
#include "prunex/strategies/exchange/rail_exchange.h"
#include "prunex/strategies/exchange/row_shards.h"
#include "prunex/strategies/hsadmm/hsadmm.h"
#include "tests/groups.h"
#include "tests/larger.h"
#include "tests/strategies/small_problem.h"

namespace prunex::strategies {
namespace {

TensorDict some_tensors() {
  TensorDict tensors;
  tensors.insert("weight", at::randn({10, 4, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast));
  tensors.insert("bias", at::randn({10}));
  tensors.insert("scale", at::randn({}));
  tensors.insert("classifier", at::randn({7, 20}));
  return tensors;
}

/// Where the ranks of one node alone could share memory, others would take its messages for their own.
TEST(RailExchange, AddsUpLargeBuffersOnNodesOfAnyShape) {
  for (const std::vector<int>& nodes : {std::vector<int>{2, 1}, {1, 3}, {3, 2}, {2, 2}}) {
    for (const int64_t count : {4'194'304, 2'500'000}) {
      comm::run_ranks({.node_sizes = nodes}, [&](comm::Hierarchy& groups) {
        RailExchange ranks(groups);
        const int all = groups.layout.world_size();
        at::Tensor buffer = at::arange(count, at::kFloat).remainder_(1024).add_(groups.layout.rank);
        ranks.sum_over_ranks(buffer);
        const at::Tensor sum = at::arange(count, at::kFloat).remainder_(1024).mul_(all).add_(all * (all - 1) / 2);
        EXPECT_TRUE(buffer.equal(sum)) << describe(groups.layout) << ", " << count;
      });
    }
  }
}

TEST(RowShards, HoldEveryRowOnceAndAboutTheSameNumberOfEntries) {
  const TensorDict tensors = some_tensors();
  for (const auto& [rails, ranks] : std::vector<std::pair<int, int>>{{1, 1}, {1, 3}, {2, 2}, {3, 5}, {4, 4}}) {
    const RowShards shards(tensors, rails, ranks);
    std::map<std::string, std::vector<at::Tensor>> rows;
    for (int shard = 0; shard < ranks; ++shard) {
      int64_t entries = 0;
      for (const auto& item : shards.rows(tensors, shard)) {
        rows[item.key()].push_back(item.value());
        entries += item.value().numel();
      }
      EXPECT_NEAR(static_cast<double>(entries), shard < rails ? 511.0 / rails : 0, 36) << shard << " of " << rails;
    }
    for (const auto& item : tensors) {
      EXPECT_TRUE(at::cat(rows[item.key()]).flatten().equal(item.value().flatten())) << item.key();
    }
  }
}

TEST(RowShards, KeepTheirRowsThroughACut) {
  TensorDict tensors = some_tensors();
  const TensorDict before = clones(tensors);
  sparsity::Cut cut;
  for (const auto& item : tensors) cut.tensors[item.key()].shape = item.value().sizes().vec();
  cut.tensors["weight"].kept = {{0, {0, 1, 6, 9}}, {1, {2, 3}}};
  cut.tensors["bias"].kept = {{0, {0, 1, 6, 9}}};
  cut.tensors["classifier"].kept = {{1, {4, 5, 6}}};
  RowShards shards(tensors, 3, 3);
  std::vector<TensorDict> own;
  for (int shard = 0; shard < 3; ++shard) {
    own.push_back(clones(shards.rows(tensors, shard)));
    sparsity::apply_cut(own.back(), shards.rows(cut, shard));
  }
  sparsity::apply_cut(tensors, cut);
  shards.cut(cut);
  for (int shard = 0; shard < 3; ++shard) {
    for (const auto& item : shards.rows(tensors, shard)) {
      EXPECT_TRUE(item.value().equal(own[shard][item.key()])) << item.key() << " " << shard;
    }
  }
}

TEST(ShardedCompaction, PacksWhatIsAliveAndUnpacksZerosElsewhere) {
  const TensorDict tensors = some_tensors();
  sparsity::Supports supports;
  supports.insert("weight", {.rows = at::arange(10) < 6, .columns = (at::arange(36) % 2 == 0).view({4, 3, 3})});
  const RowShards shards(tensors, 2, 2);
  const ShardedCompaction plan(shards, tensors, supports);
  EXPECT_EQ(plan.numel(), 6 * 18 + 10 + 1 + 140);
  at::Tensor buffer = at::empty({plan.numel()});
  plan.pack(tensors, buffer);
  TensorDict copy = clones(tensors);
  for (auto& item : copy) item.value().fill_(9);
  plan.unpack(buffer, copy);
  for (const auto& item : tensors) {
    at::Tensor want = item.value().clone();
    if (const auto* support = supports.find(item.key())) sparsity::apply_support(want, *support);
    EXPECT_TRUE(copy[item.key()].equal(want)) << item.key();
  }
}

double gap(const Snapshot& a, const Snapshot& b) {
  double worst = 0;
  int64_t compared = 0;
  for (const auto& item : a.state) {
    if (!item.key().starts_with("z/") && !item.key().starts_with("v/")) continue;
    worst = tests::larger(worst, (item.value() - b.state[item.key()]).abs().max().item().toDouble());
    ++compared;
  }
  EXPECT_GT(compared, 0);
  return worst;
}

TEST(Sharded, IsTheLeadersFormToRounding) {
  for (HsadmmOptions options : {default_options(), paper_options()}) {
    const auto sharded = run_on_ranks(2, 3, options);
    options.exchange.form = ExchangeForm::kLeader;
    const auto led = run_on_ranks(2, 3, options);
    for (size_t rank = 0; rank < led.size(); ++rank) {
      for (size_t k = 0; k < led[rank].size(); ++k) EXPECT_LT(gap(led[rank][k], sharded[rank][k]), 1e-12) << k;
    }
  }
}

TEST(Sharded, LeavesTheSameZOnAllRanksBitForBit) {
  const auto histories = run_on_ranks(2, 3, default_options(), LocalPhase::kTrainAndCut, at::kFloat);
  for (size_t rank = 1; rank < histories.size(); ++rank) {
    for (size_t k = 0; k < histories[0].size(); ++k) {
      for (const auto& item : histories[0][k].state) {
        if (!item.key().starts_with("z/")) continue;
        EXPECT_TRUE(item.value().equal(histories[rank][k].state[item.key()])) << item.key() << " rank " << rank;
      }
    }
  }
}

TEST(Sites, ChangeTheWayAndNotTheResult) {
  const comm::Layout flat = comm::Layout::even(4, 2);
  comm::Layout sites = flat;
  sites.sites = 2;
  for (const HsadmmOptions& options : {default_options(), paper_options()}) {
    const auto plain = run_on_ranks(flat, options), on_sites = run_on_ranks(sites, options);
    for (size_t rank = 0; rank < plain.size(); ++rank) {
      for (size_t k = 0; k < plain[rank].size(); ++k) EXPECT_LT(gap(plain[rank][k], on_sites[rank][k]), 1e-12) << k;
    }
  }
}

TEST(UnevenNodes, KeepTheirWeightedDualsAtZeroAndOneZ) {
  const comm::Layout shape{.node_sizes = {3, 1}};
  HsadmmOptions options = default_options();
  options.masks.freeze_after = kNever;
  const auto histories = run_on_ranks(shape, options);
  for (size_t k = 0; k < histories[0].size(); ++k) {
    const TensorDict &first = histories[0][k].state, &second = histories[3][k].state;
    for (const auto& item : first) {
      if (item.key().starts_with("v/")) {
        EXPECT_LT((3 * item.value() + second[item.key()]).abs().max().item<double>(), 1e-12) << item.key();
      }
      if (item.key().starts_with("z/")) {
        EXPECT_TRUE(item.value().equal(second[item.key()])) << item.key();
      }
    }
  }
}

TEST(UnevenNodes, AverageOverAllRanks) {
  // docs/algorithm.md, section 3: without ADMM every rank weighs the same, wherever it stands
  HsadmmOptions options = default_options();
  options.masks.groups.clear();
  options.masks.freeze_after = kNever;
  options.consensus.penalty.kappa = 0;
  options.after_freeze = AfterFreeze::kAverage;
  const auto uneven = run_on_ranks(comm::Layout{.node_sizes = {1, 3}}, options), even = run_on_ranks(2, 2, options);
  for (size_t k = 0; k < even[0].size(); ++k) EXPECT_LT(gap(even[0][k], uneven[0][k]), 1e-12) << k;
}

TEST(UnevenNodes, FollowEquationNineWithTheirOwnSizes) {
  // One exchange of one tensor entry by entry, dense: Eq. 9 and 11 of docs/algorithm.md for nodes of different size.
  HsadmmOptions options = default_options();
  options.masks.groups.clear();
  options.consensus.aux = AuxTensors::kAdmm;
  options.masks.freeze_after = kNever;
  options.consensus.penalty = {.rule = admm::PenaltyRule::kFixed, .rho1 = 0.3, .rho2 = 0.2};
  options.consensus.lambda = 0.1;
  const auto histories = run_on_ranks(comm::Layout{.node_sizes = {3, 1}}, options);
  const auto& start = SmallProblem(0).initial_replica().weights.params;
  std::vector<Replica> replicas;
  for (int rank = 0; rank < 4; ++rank) {
    replicas.push_back(SmallProblem(0).initial_replica());
    LocalTerms terms;
    for (const auto& item : start) terms.anchor.insert(item.key(), item.value().clone());
    terms.rho1.assign(start.size(), 0.3);
    SmallProblem(rank).train(replicas.back(), terms, 1, 3);
  }
  const auto theta = [&](int rank, const std::string& name) { return replicas[rank].weights.params[name]; };
  for (const auto& item : start) {
    const auto& name = item.key();
    const auto candidate = [&](const at::Tensor& sum, double ranks) {
      const double rho2 = 0.2 * ranks / 2;  // two ranks per node on average
      return (0.3 * sum + rho2 * item.value()) / (ranks * 0.1 + ranks * 0.3 + rho2);
    };
    const at::Tensor first = candidate(theta(0, name) + theta(1, name) + theta(2, name), 3);
    const at::Tensor second = candidate(theta(3, name), 1);
    const at::Tensor z = (3 * first + second) / 4;
    const TensorDict& state = histories[0][0].state;
    EXPECT_LT((state["z/" + name] - z).abs().max().item<double>(), 1e-12) << name;
    EXPECT_LT((state["v/" + name] - (first - z)).abs().max().item<double>(), 1e-12) << name;
  }
}

/// Times that an exchange moves the model in this rank's memory: what it sends and receives apart.
std::vector<double> copies(const HsadmmOptions& options) {
  std::vector<double> copies;
  for (const auto& snapshot : run_on_ranks(2, 2, options, LocalPhase::kTrainAndCut, at::kFloat)[1]) {
    int64_t entries = 0;
    for (const auto& item : snapshot.theta) entries += item.value().numel();
    copies.push_back(static_cast<double>(snapshot.copied) / static_cast<double>(entries));
  }
  copies.pop_back();  // finish() is no exchange
  return copies;
}

TEST(Exchanges, MoveTheModelFiveTimesBeforeTheFreezeAndTwiceAfterIt) {
  HsadmmOptions admm = default_options(), stepped = admm, masked = admm, rounded = admm;
  stepped.outer.from = 1;
  masked.consensus.penalty.kappa = rounded.consensus.penalty.kappa = 0;
  masked.outer.from = 1;
  rounded.exchange.payload = Payload::kInt4;
  for (const auto& options : {admm, stepped, masked, rounded}) {
    const auto times = copies(options);
    ASSERT_EQ(times.size(), 6);
    const bool rounds = options.exchange.payload != Payload::kFp32;  // what rounding leaves out follows the masks
    for (size_t k = 0; k < times.size(); ++k) {
      const bool frozen = k >= 4;  // and cut: the freeze is the fourth exchange
      EXPECT_GT(times[k], 1) << k;
      EXPECT_LE(times[k], frozen ? 2.1 : rounds ? 7.1 : 5.1) << k;
    }
  }
}

}  // namespace
}  // namespace prunex::strategies
