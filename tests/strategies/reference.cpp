#include "tests/strategies/reference.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "prunex/sparsity/projection.h"
#include "tests/units.h"

namespace prunex::strategies {
namespace {

using sparsity::Group;
using sparsity::Masks;

double sum_of_squares(const at::Tensor& x) {
  return x.square().sum().item<double>();
}

Masks all_alive(const std::vector<Group>& groups) {
  Masks masks;
  for (const Group& group : groups) masks.insert(group.name, at::ones({group.size}, at::kBool));
  return masks;
}

}  // namespace

Reference::Reference(HsadmmOptions options, const comm::Layout& shape, at::ScalarType type)
    : options_(std::move(options)),
      shape_(shape),
      ranks_(shape.nodes()),
      nodes_(shape.nodes()),
      duals_(options_.consensus.penalty.kappa > 0) {
  const Replica start = SmallProblem(0, type).initial_replica();
  z_ = {clones(start.weights.params), clones(start.weights.buffers)};
  masks_ = all_alive(options_.masks.groups);
  TensorDict zero;
  for (const auto& tensor : z_.params) zero.insert(tensor.key(), at::zeros_like(tensor.value()));
  outer_ = clones(zero);
  for (int i = 0; i < shape.nodes(); ++i) {
    nodes_[i] = {.candidate = TensorDict(),
                 .z_node = clones(z_.params),
                 .z_node_before = TensorDict(),
                 .v = clones(zero),
                 .masks = masks_};
    for (int j = 0; j < shape.node_sizes[i]; ++j) {
      Replica replica{{clones(z_.params), clones(z_.buffers)}, OptimizerState()};
      replica.optimizer.insert("momentum", clones(zero));
      ranks_[i].push_back({SmallProblem(shape.first_rank(i) + j, type), replica, clones(zero)});
    }
  }
  for (const auto& name : z_.params.keys()) {
    if (in_admm(name)) rho_[name] = first_or_kappa_penalties(1);
  }
  if (options_.exchange.payload != Payload::kFp32 && shape.nodes() > 1)
    rounded_mean_.emplace(shape, options_.exchange.payload, zero);
}

/// How much a node counts for: it has more or fewer ranks than the average.
double Reference::weight(size_t i) const {
  return static_cast<double>(ranks_[i].size()) * static_cast<double>(nodes_.size()) / shape_.world_size();
}

bool Reference::in_admm(const std::string& name) const {
  bool grouped = options_.consensus.aux == AuxTensors::kAdmm;
  for (const Group& group : options_.masks.groups) {
    for (const auto& slice : group.slices) grouped = grouped || slice.tensor == name;
  }
  return duals_ && grouped && z_.params.find(name) != nullptr;
}

void Reference::iterate() {
  ++k_;
  train();
  make_candidates();
  choose_masks();
  update_z();
  update_duals();
  restart();
}

LocalTerms Reference::terms_of(int i, int j) const {
  LocalTerms terms;
  for (const auto& name : z_.params.keys()) {
    if (in_admm(name)) {
      terms.anchor.insert(name, nodes_[i].z_node[name] - ranks_[i][j].u[name]);
      terms.rho1.push_back(rho_.at(name).rho1);
    }
    if (frozen_ && options_.masks.mask_theta)
      terms.masks.insert(name, masked(at::ones_like(z_.params[name]), name, masks_));
  }
  return terms;
}

void Reference::train() {
  const int64_t first = (k_ - 1) * options_.local.steps + 1;
  const int64_t last = std::min(k_ * options_.local.steps, options_.local.total_steps);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    for (size_t j = 0; j < ranks_[i].size(); ++j) {
      ranks_[i][j].problem.train(ranks_[i][j].replica, terms_of(i, j), first, last);
    }
  }
}

/// Eq. 9; means for what is not in ADMM.
void Reference::make_candidates() {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const double P = static_cast<double>(ranks_[i].size());
    nodes_[i].candidate = TensorDict();
    for (const auto& name : z_.params.keys()) {
      at::Tensor S = at::zeros_like(z_.params[name]);
      for (const Rank& rank : ranks_[i]) S += rank.replica.weights.params[name] + rank.u[name];
      if (!in_admm(name)) {
        nodes_[i].candidate.insert(name, S / P);
        continue;
      }
      const double rho1 = rho_.at(name).rho1, rho2 = rho_.at(name).rho2 * weight(i);
      const at::Tensor pulled = rho1 * S + rho2 * z_.params[name] - rho2 * nodes_[i].v[name];
      nodes_[i].candidate.insert(name, pulled / (P * options_.consensus.lambda + P * rho1 + rho2));
    }
    at::Tensor mean = at::zeros_like(z_.buffers["mean"]);
    for (const Rank& rank : ranks_[i]) mean += rank.replica.weights.buffers["mean"] / P;
    nodes_[i].candidate.insert("mean", mean);
  }
}

at::Tensor Reference::masked(const at::Tensor& tensor, const std::string& name, const Masks& masks) const {
  return tensor * tests::alive_entries(options_.masks.groups, masks, name, tensor).to(tensor.scalar_type());
}

at::Tensor Reference::unit_scores(const Group& group, const TensorDict& tensors) const {
  at::Tensor scores = at::zeros({group.size}, at::kDouble);
  for (const auto& slice : group.slices) {
    const at::Tensor tensor = tensors[slice.tensor].to(at::kDouble);
    const at::Tensor units = tests::unit_of_entries(group, slice, tensor);
    for (int64_t unit = 0; unit < group.size; ++unit) scores[unit] += sum_of_squares(tensor * units.eq(unit));
  }
  return scores;
}

/// A unit is kept if fewer than `kept` are better; of equal ones the lower index is.
at::Tensor Reference::best_units(const at::Tensor& scores, int64_t kept) const {
  at::Tensor mask = at::zeros({scores.numel()}, at::kBool);
  const double* score = scores.const_data_ptr<double>();
  for (int64_t unit = 0; unit < scores.numel(); ++unit) {
    int64_t better = 0;
    for (int64_t other = 0; other < scores.numel(); ++other) {
      if (score[other] > score[unit] || (score[other] == score[unit] && other < unit)) ++better;
    }
    mask[unit] = better < kept;
  }
  return mask;
}

void Reference::choose_masks() {
  const Masks before = masks_;
  const bool freezes = !frozen_ && k_ > options_.masks.freeze_after;
  changes_ = 0;
  if (frozen_) {
    for (Node& node : nodes_) node.masks = masks_;
    return;
  }
  masks_ = Masks();
  for (Node& node : nodes_) node.masks = Masks();
  for (const Group& group : options_.masks.groups) {
    const int64_t kept =
        sparsity::units_kept(group.size, freezes ? group.keep : options_.masks.keep.share(k_, group.keep));
    const bool joint = freezes || options_.masks.rule == MaskRule::kJoint;
    at::Tensor sum = at::zeros({group.size}, at::kDouble), united = at::zeros({group.size}, at::kBool);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      Node& node = nodes_[i];
      const at::Tensor scores = unit_scores(group, node.candidate);
      sum += weight(i) * scores;
      united.logical_or_(best_units(scores, kept));
      node.masks.insert(group.name, best_units(scores, kept));
    }
    masks_.insert(group.name, joint ? best_units(sum, kept) : united);
    if (joint) {
      for (Node& node : nodes_) node.masks[group.name] = masks_[group.name];
    }
    if (!freezes) changes_ += masks_[group.name].ne(before[group.name]).sum().item<int64_t>();
  }
  if (freezes) freeze();
}

void Reference::freeze() {
  frozen_ = true;
  const bool drops = options_.after_freeze != AfterFreeze::kAdmm;
  for (const auto& name : z_.params.keys()) {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      at::Tensor& v = nodes_[i].v[name];
      if (drops && rounded_mean_) nodes_[i].candidate[name] += v;  // what messages have left out
      v = drops ? at::zeros_like(v) : masked(v, name, masks_);
      for (Rank& rank : ranks_[i]) {
        rank.replica.optimizer["momentum"][name] = masked(rank.replica.optimizer["momentum"][name], name, masks_);
        if (options_.masks.mask_theta) {
          rank.replica.weights.params[name] = masked(rank.replica.weights.params[name], name, masks_);
          rank.u[name] = masked(rank.u[name], name, masks_);
        }
        if (drops) rank.u[name] = at::zeros_like(v);
      }
    }
  }
  if (drops) duals_ = false;
}

/// 1 where the global masks leave something, else 0.
TensorDict Reference::alive() const {
  TensorDict alive;
  for (const auto& z : z_.params) alive.insert(z.key(), masked(at::ones_like(z.value()), z.key(), masks_));
  return alive;
}

/// Eq. 11, over whole tensors: the v of all nodes cancel where nobody has support.
TensorDict Reference::mean_over_nodes() {
  TensorDict means;
  for (const auto& name : z_.params.keys()) {
    at::Tensor mean = at::zeros_like(z_.params[name]);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      mean += (nodes_[i].z_node[name] + nodes_[i].v[name]) * (weight(i) / static_cast<double>(nodes_.size()));
    }
    means.insert(name, mean);
  }
  return means;
}

/// The same, as far as messages tell of the change since z; where nobody has support v does not cancel quite.
TensorDict Reference::rounded_mean_over_nodes() {
  std::vector<TensorDict> changes(nodes_.size());
  for (size_t i = 0; i < nodes_.size(); ++i) {
    for (const auto& z : z_.params) {
      const at::Tensor change = nodes_[i].z_node[z.key()] + nodes_[i].v[z.key()] - z.value();
      changes[i].insert(z.key(), change * weight(i));
    }
  }
  TensorDict means = (*rounded_mean_)(changes, alive());
  for (const auto& name : z_.params.keys()) {
    if (in_admm(name)) rounded_mean_->forget(name);  // v has it
  }
  for (auto& mean : means) {
    mean.value() = masked(mean.value() + z_.params[mean.key()], mean.key(), masks_);
  }
  return means;
}

/// Eq. 10 and 11, and 13 with the mean that nodes agree on. Then the outer step.
void Reference::update_z() {
  const bool outer =
      options_.outer.from > 0 ? k_ >= options_.outer.from : frozen_ && options_.after_freeze == AfterFreeze::kNesterov;
  z_before_ = clones(z_.params);
  for (Node& node : nodes_) {
    node.z_node_before = node.z_node;
    node.z_node = TensorDict();
    for (const auto& name : z_.params.keys()) {
      node.z_node.insert(name, masked(node.candidate[name], name, node.masks));
    }
  }
  const TensorDict means = rounded_mean_ ? rounded_mean_over_nodes() : mean_over_nodes();
  for (const auto& name : z_.params.keys()) {
    const at::Tensor& mean = means[name];
    for (Node& node : nodes_) {
      if (!in_admm(name)) continue;
      node.v[name] = node.v[name] + node.z_node[name] - mean;
      if (rounded_mean_) node.v[name] = masked(node.v[name], name, masks_);
    }
    if (!outer) {
      z_.params[name] = mean;
      continue;
    }
    const at::Tensor z = masked(z_.params[name], name, masks_);
    const at::Tensor d = z - mean;
    outer_[name] = options_.outer.momentum * masked(outer_[name], name, masks_) + d;
    z_.params[name] = z - options_.outer.rate * d - options_.outer.rate * options_.outer.momentum * outer_[name];
  }
  z_.buffers["mean"] = at::zeros_like(z_.buffers["mean"]);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    z_.buffers["mean"] += nodes_[i].candidate["mean"] * (weight(i) / static_cast<double>(nodes_.size()));
  }
}

/// Eq. 12; Eq. 13 stands where the mean is.
void Reference::update_duals() {
  residuals_.clear();
  if (!duals_) return;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    for (Rank& rank : ranks_[i]) {
      for (const auto& name : z_.params.keys()) {
        if (in_admm(name)) rank.u[name] = rank.u[name] + rank.replica.weights.params[name] - nodes_[i].z_node[name];
      }
    }
  }
  measure_residuals();
  adapt_penalties();
}

void Reference::measure_residuals() {
  const double M = static_cast<double>(nodes_.size()), P = shape_.mean_node_size();
  for (const auto& [name, rho] : rho_) {
    double theta_gap = 0, node_step = 0, node_gap = 0;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = nodes_[i];
      node_step += weight(i) * sum_of_squares(node.z_node[name] - node.z_node_before[name]);
      node_gap += sum_of_squares(node.z_node[name] - z_.params[name]);
      for (const Rank& rank : ranks_[i])
        theta_gap += sum_of_squares(rank.replica.weights.params[name] - node.z_node[name]);
    }
    residuals_[name] = {std::sqrt(theta_gap), rho.rho1 * std::sqrt(P * node_step), std::sqrt(node_gap),
                        rho.rho2 * std::sqrt(M * sum_of_squares(z_.params[name] - z_before_[name]))};
  }
}

admm::Penalties Reference::first_or_kappa_penalties(int64_t k) const {
  const bool one_node = nodes_.size() == 1;
  const auto& penalty = options_.consensus.penalty;
  if (penalty.rule != admm::PenaltyRule::kKappa) return {penalty.rho1, one_node ? 0 : penalty.rho2};
  double sum = 0, largest = 0;
  for (int64_t step = 1; step <= options_.local.total_steps; ++step) {
    largest = std::max(largest, learning_rate(step));
    if ((step - 1) / options_.local.steps == k - 1) sum += learning_rate(step);
  }
  const double cap = 0.05 / largest;
  const double rho1 = sum == 0 ? cap : std::min(cap, penalty.kappa * (1 - options_.local.momentum) / sum);
  return {rho1, one_node ? 0 : 0.25 * shape_.mean_node_size() * rho1};
}

void Reference::adapt_penalties() {
  const auto& penalty = options_.consensus.penalty;
  const auto capped = [](double rho, double cap) { return cap > 0 ? std::min(rho, cap) : rho; };
  const auto balanced = [&](double rho, double r, double s) {
    return r > penalty.mu * s ? rho * penalty.tau : s > penalty.mu * r ? rho / penalty.tau : rho;
  };
  for (auto& [name, rho] : rho_) {
    admm::Penalties next = rho;
    const auto& residual = residuals_[name];
    if (penalty.rule == admm::PenaltyRule::kKappa) next = first_or_kappa_penalties(k_ + 1);
    if (penalty.rule == admm::PenaltyRule::kGeometric) next = {rho.rho1 * penalty.growth, rho.rho2 * penalty.growth};
    if (penalty.rule == admm::PenaltyRule::kResidual) {
      next = {capped(balanced(rho.rho1, residual.r_intra, residual.s_intra), penalty.rho1_max),
              capped(balanced(rho.rho2, residual.r_inter, residual.s_inter), penalty.rho2_max)};
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_.size() > 1) nodes_[i].v[name] = nodes_[i].v[name] * (rho.rho2 / next.rho2);
      for (Rank& rank : ranks_[i]) rank.u[name] = rank.u[name] * (rho.rho1 / next.rho1);
    }
    rho = next;
  }
}

void Reference::restart() {
  for (auto& node : ranks_) {
    for (Rank& rank : node) {
      for (const auto& name : z_.params.keys()) {
        const bool own = options_.consensus.start_from == StartFrom::kTheta && in_admm(name);
        if (!own) rank.replica.weights.params[name] = z_.params[name].clone();
      }
      if (!rounded_mean_) rank.replica.weights.buffers["mean"] = z_.buffers["mean"].clone();
      z_.buffers["counter"] = rank.replica.weights.buffers["counter"].clone();
    }
  }
}

}  // namespace prunex::strategies
