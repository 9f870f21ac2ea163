#include "tests/strategies/small_problem.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include "prunex/comm/connect.h"
#include "tests/groups.h"

namespace prunex::strategies {
namespace {

using tests::random_tensors;

/// The terms on one parameter; a zero rho and ones where there are none.
struct OwnTerms {
  at::Tensor anchor, mask;
  double rho1 = 0;
};

OwnTerms terms_on(const std::string& name, const at::Tensor& theta, const LocalTerms& terms) {
  OwnTerms own{at::zeros_like(theta), at::ones_like(theta)};
  for (size_t t = 0; t < terms.anchor.size(); ++t) {
    if (terms.anchor.keys()[t] == name) own = {terms.anchor[t].value(), own.mask, terms.rho1[t]};
  }
  if (const at::Tensor* mask = terms.masks.find(name)) own.mask = *mask;
  return own;
}

thread_local int64_t copied_entries = 0;

/// of aten::copy_(to, from), which clone() calls, too; and of what packs into a buffer or unpacks.
std::unique_ptr<at::ObserverContext> count_copied(const at::RecordFunction& call) {
  const std::string name = call.name();
  if (name != "aten::copy_" && name != "prunex::pack" && name != "prunex::unpack") return nullptr;
  const at::Tensor moved = call.inputs()[0].toTensor();
  if (moved.is_floating_point() && moved.numel() > 1) copied_entries += moved.numel();
  return nullptr;
}

Snapshot snapshot_of(const Replica& replica, const Strategy& strategy) {
  Snapshot snapshot;
  snapshot.theta = clones(replica.weights.params);
  snapshot.buffers = clones(replica.weights.buffers);
  snapshot.momentum = clones(replica.optimizer["momentum"]);
  snapshot.state = clones(merged(strategy.state()));
  snapshot.next_rho1 = strategy.local_terms().rho1;
  for (const auto& mask : strategy.masks()) snapshot.masks.insert(mask.key(), mask.value().clone());
  return snapshot;
}

void cut_all(const HsadmmOptions& options, SmallProblem& problem, Replica& replica, Strategy& strategy) {
  const sparsity::Cut cut = cut_of(options, strategy.masks(), replica.weights);
  problem.cut(cut);
  sparsity::apply_cut(replica.weights, cut);
  sparsity::apply_cut(replica.optimizer["momentum"], cut);
  strategy.cut(cut, replica);
}

History run_rank(comm::Hierarchy& ranks, const HsadmmOptions& options, LocalPhase phase, SmallProblem problem) {
  bool whole = phase == LocalPhase::kTrainAndCut;
  Replica replica = problem.initial_replica();
  const auto strategy = make_hsadmm(replica, ranks, options);
  History history;
  comm::Traffic before = ranks.rail->traffic();  // of the last exchange: between two of them one may be on its way
  comm::Volume moved = comm::moved_by_exchanges(ranks);
  for (int64_t step = 1; step <= options.local.total_steps; ++step) {
    if (phase == LocalPhase::kMinimise) {
      problem.minimise(replica, strategy->local_terms());
    } else {
      problem.train(replica, strategy->local_terms(), step, step);
    }
    strategy->before_update(replica);
    copied_entries = 0;
    const at::CallbackHandle count =
        at::addThreadLocalCallback(at::RecordFunctionCallback(count_copied).needsInputs(true));
    const Exchange exchange = strategy->after_update(replica, step);
    at::removeCallback(count);
    if (!exchange.exchanged) continue;
    history.push_back(snapshot_of(replica, *strategy));
    history.back().exchange = exchange;
    history.back().copied = copied_entries;
    history.back().rail_payload = ranks.rail->traffic().bytes.payload - before.bytes.payload;
    history.back().rail_sent = ranks.rail->traffic().bytes.sent - before.bytes.sent;
    history.back().sent_to_nodes = (comm::moved_by_exchanges(ranks) - moved).sent_to_nodes;
    before = ranks.rail->traffic();
    moved = comm::moved_by_exchanges(ranks);
    if (exchange.converged) break;
    if (whole && exchange.frozen) cut_all(options, problem, replica, *strategy);
    whole = whole && !exchange.frozen;
  }
  strategy->finish();
  history.push_back(snapshot_of(replica, *strategy));
  return history;
}

bool kept_by_rows(const std::string& key) {
  return key.starts_with("v/") || key.starts_with("feedback_");
}

/// Every rank keeps v, and what rounded messages left out, of its own rows; puts a node's together on all of its ranks.
void assemble_rows(std::vector<History>& histories, int first, int count) {
  for (size_t k = 0; k < histories[first].size(); ++k) {
    std::map<std::string, std::vector<at::Tensor>> rows;
    for (int rank = first; rank < first + count; ++rank) {
      for (const auto& item : histories[rank][k].state) {
        if (kept_by_rows(item.key())) rows[item.key()].push_back(item.value());
      }
    }
    for (int rank = first; rank < first + count; ++rank) {
      TensorDict& state = histories[rank][k].state;
      for (const auto& [name, parts] : rows) {
        const at::Tensor whole = at::cat(parts);
        if (at::Tensor* own = state.find(name)) {
          *own = whole;
        } else {
          state.insert(name, whole);
        }
      }
    }
  }
}

}  // namespace

TensorDict merged(const State& state) {
  TensorDict all = state.global;
  for (const TensorDict* part : {&state.node, &state.rank}) {
    for (const auto& item : *part) all.insert(item.key(), item.value());
  }
  return all;
}

double learning_rate(int64_t step) {
  return 0.2 / (1 + 0.1 * static_cast<double>(step));
}

SmallProblem::SmallProblem(int rank, at::ScalarType type)
    : rank_(rank), centre_(random_tensors(type, at::MemoryFormat::ChannelsLast, 100 + rank)) {
  for (const auto& noise : random_tensors(type, at::MemoryFormat::ChannelsLast, 200 + rank)) {
    curvature_.insert(noise.key(), noise.value().sigmoid() + 0.25);
  }
}

Replica SmallProblem::initial_replica() const {
  const auto type = centre_.front().value().scalar_type();
  Replica replica;
  TensorDict momentum;
  for (const auto& tensor : random_tensors(type, at::MemoryFormat::ChannelsLast, 300 + rank_)) {
    replica.weights.params.insert(tensor.key(), tensor.value());
    momentum.insert(tensor.key(), at::zeros_like(tensor.value()));
  }
  replica.optimizer.insert("momentum", momentum);
  replica.weights.buffers.insert("mean", at::full({6}, 0.5 * rank_, type));
  replica.weights.buffers.insert("counter", at::zeros({}, at::kLong));
  return replica;
}

TensorDict SmallProblem::gradients(const TensorDict& params) const {
  TensorDict gradients;
  for (const auto& item : params) {
    const at::Tensor theta = item.value().detach();
    gradients.insert(item.key(), curvature_[item.key()] * (theta - centre_[item.key()]) + kDecay * theta);
  }
  return gradients;
}

void SmallProblem::train(Replica& replica, const LocalTerms& terms, int64_t first, int64_t last) const {
  at::NoGradGuard no_grad;
  for (int64_t step = first; step <= last; ++step) {
    const TensorDict gradient_of_f = gradients(replica.weights.params);
    for (auto& item : replica.weights.params) {
      at::Tensor& theta = item.value();
      at::Tensor& velocity = replica.optimizer["momentum"][item.key()];
      const OwnTerms own = terms_on(item.key(), theta, terms);
      const at::Tensor gradient = gradient_of_f[item.key()] + own.rho1 * (theta - own.anchor);
      velocity.copy_((kMomentum * velocity + gradient) * own.mask);
      theta.copy_((theta - learning_rate(step) * velocity) * own.mask);
    }
    at::Tensor& mean = replica.weights.buffers["mean"];
    mean.mul_(0.9).add_(replica.weights.params["first"].mean(at::IntArrayRef{1, 2, 3}) + rank_, 0.1);
    replica.weights.buffers["counter"].add_(1);
  }
}

void SmallProblem::minimise(Replica& replica, const LocalTerms& terms) const {
  for (auto& item : replica.weights.params) {
    const OwnTerms own = terms_on(item.key(), item.value(), terms);
    const at::Tensor& curvature = curvature_[item.key()];
    item.value().copy_((curvature * centre_[item.key()] + own.rho1 * own.anchor) / (curvature + own.rho1) * own.mask);
  }
}

void SmallProblem::cut(const sparsity::Cut& cut) {
  sparsity::apply_cut(centre_, cut);
  sparsity::apply_cut(curvature_, cut);
}

TensorDict SmallProblem::common_minimum(const std::vector<SmallProblem>& problems) {
  TensorDict minimum;
  for (const auto& name : problems.front().centre_.keys()) {
    at::Tensor weighted = at::zeros_like(problems.front().centre_[name]), weight = at::zeros_like(weighted);
    for (const auto& problem : problems) {
      weighted += problem.curvature_[name] * problem.centre_[name];
      weight += problem.curvature_[name];
    }
    minimum.insert(name, weighted / weight);
  }
  return minimum;
}

std::vector<SmallProblem> problems_of(int ranks) {
  std::vector<SmallProblem> problems;
  for (int rank = 0; rank < ranks; ++rank) problems.emplace_back(rank);
  return problems;
}

HsadmmOptions default_options() {
  const auto groups = tests::groups_of_every_kind(0.5);
  HsadmmOptions options;
  options.masks.groups = {groups[0], groups[4]};  // coupled, flat
  options.masks.keep = {.ramp = sparsity::KeepRamp::kCubic, .start = 2, .end = 3};
  options.masks.freeze_after = 3;
  options.local.steps = 3;
  options.local.total_steps = 17;
  options.local.learning_rate = learning_rate;
  options.local.momentum = kMomentum;
  return options;
}

HsadmmOptions averaging_options() {
  HsadmmOptions options = default_options();
  options.consensus.penalty.kappa = 0;
  return options;
}

HsadmmOptions paper_options() {
  HsadmmOptions options = default_options();
  const auto groups = tests::groups_of_every_kind(0.6);
  options.masks.groups = {groups[1], groups[2], groups[3]};  // filter, channel, shape
  options.masks.keep.ramp = sparsity::KeepRamp::kHard;
  options.masks.rule = MaskRule::kUnion;
  options.consensus.penalty = {.rule = admm::PenaltyRule::kResidual, .rho1 = 0.3, .rho2 = 0.2, .rho1_max = 1, .mu = 2};
  options.consensus.start_from = StartFrom::kTheta;
  options.consensus.aux = AuxTensors::kAdmm;
  options.after_freeze = AfterFreeze::kAdmm;
  options.masks.freeze_after = 4;
  return options;
}

sparsity::Cut cut_of(const HsadmmOptions& options, const sparsity::Masks& masks, const Weights& weights) {
  auto groups = options.masks.groups;
  for (auto& group : groups) {
    if (group.name == "coupled") group.slices.push_back({"mean", sparsity::kRows, {}});
  }
  return sparsity::make_cut(groups, masks, sparsity::shapes_of(weights));
}

std::vector<History> run_on_ranks(int nodes, int ranks_per_node, const HsadmmOptions& options, LocalPhase phase,
                                  at::ScalarType type) {
  return run_on_ranks(comm::Layout::even(nodes, ranks_per_node), options, phase, type);
}

std::vector<History> run_on_ranks(const comm::Layout& shape, const HsadmmOptions& options, LocalPhase phase,
                                  at::ScalarType type) {
  std::vector<History> histories(shape.world_size());
  comm::run_ranks(shape, [&](comm::Hierarchy& ranks) {
    const int rank = ranks.layout.rank;
    histories[rank] = run_rank(ranks, options, phase, SmallProblem(rank, type));
  });
  const comm::Layout seen = options.consensus.flat ? comm::Layout::even(1, shape.world_size()) : shape;
  for (int node = 0; node < seen.nodes(); ++node) {
    assemble_rows(histories, seen.first_rank(node), seen.node_sizes[node]);
  }
  return histories;
}

}  // namespace prunex::strategies
