#include "prunex/strategies/hsadmm/duals.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "prunex/admm/updates.h"
#include "prunex/strategies/dictionaries.h"

namespace prunex::strategies {

using admm::SquaredNorms;

Duals::Duals(const ConsensusOptions& options, const LocalSgd& local, const comm::Layout& layout,
             const RowShards& shards, std::vector<std::string> names, const TensorDict& start)
    : options_(options), local_(local), layout_(layout), shards_(shards), names_(std::move(names)) {
  for (int64_t step = 1; local.learning_rate && step <= local.total_steps; ++step) {
    largest_rate_ = std::max(largest_rate_, local.learning_rate(step));
  }
  if (options.penalty.rule == admm::PenaltyRule::kKappa && options.penalty.rho1_max == 0 && !(largest_rate_ > 0)) {
    throw std::invalid_argument("learning_rate: got 0 in all steps, wanted one above 0: the kappa rule divides by it");
  }
  z_node_ = clones(start, names_);
  u_ = zeros_like(z_node_);
  forget_v();
  rho_.assign(names_.size(), admm::first_penalties(options.penalty, steps_of(local.exchanges_before + 1), cluster()));
}

void Duals::update_candidate(const TensorDict& work, const TensorDict& z) {
  const double ranks = layout_.ranks_here();
  TensorDict sums = shards_.rows(work, mine());
  const TensorDict z_rows = shards_.rows(z, mine()), z_node_rows = shards_.rows(z_node_, mine());
  for (size_t t = 0; t < names_.size(); ++t) {
    at::Tensor* sum = sums.find(names_[t]);
    if (sum == nullptr) continue;
    const auto [rho1, rho2] = rho(t);
    if (options_.as_printed) {
      admm::update_node_candidate_as_printed(*sum, z_node_rows[names_[t]], v_[names_[t]], rho1, rho2,
                                             options_.lambda / layout_.nodes());
      continue;
    }
    admm::update_node_candidate(
        *sum, z_rows[names_[t]], v_[names_[t]],
        {.rho1 = rho1, .rho2 = rho2 * ranks / layout_.mean_node_size(), .ranks = ranks, .lambda = options_.lambda});
  }
}

void Duals::note_candidate(const TensorDict& work) {
  norms_.assign(names_.size(), {});
  const TensorDict rows = shards_.rows(work, mine()), z_node_rows = shards_.rows(z_node_, mine());
  for (size_t t = 0; t < names_.size(); ++t) {
    const at::Tensor* z_node = rows.find(names_[t]);
    if (z_node == nullptr) continue;
    reader_.distance(norms_[t].z_node_step, *z_node, z_node_rows[names_[t]], layout_.ranks_here());
  }
}

void Duals::add_v(const TensorDict& work, double share) const {
  if (share == 0) return;  // a node that has just joined: its v is zero
  TensorDict rows = shards_.rows(work, mine());
  for (const auto& v : v_) rows[v.key()].add_(v.value(), 1 / share);
}

void Duals::forget_v() {
  v_ = zeros_like(shards_.rows(z_node_, mine()));
}

void Duals::update(const TensorDict& theta, const TensorDict& mean, double share) {
  const TensorDict z_node_rows = shards_.rows(z_node_, mine()), mean_rows = shards_.rows(mean, mine());
  for (auto& v : v_) admm::update_v(v.value(), z_node_rows[v.key()], mean_rows[v.key()], share);
  for (auto& u : u_) admm::update_u(u.value(), theta[u.key()], z_node_[u.key()]);
  for (size_t t = 0; t < names_.size(); ++t) {
    const auto& name = names_[t];
    reader_.distance(norms_[t].theta_gap, theta[name], z_node_[name]);
    if (!tests_convergence()) continue;
    reader_.norm(norms_[t].theta, theta[name]);
    reader_.norm(norms_[t].u, u_[name]);
    const at::Tensor* v = v_.find(name);
    if (v == nullptr) continue;
    reader_.norm(norms_[t].z_node, z_node_rows[name], layout_.ranks_here());
    reader_.norm(norms_[t].v, *v);
  }
}

void Duals::note_z(const std::string& name, const at::Tensor& before, const at::Tensor& now) {
  const auto t = static_cast<size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
  reader_.distance(norms_[t].node_gap, shards_.rows(name, z_node_[name], mine()), now);
  reader_.distance(norms_[t].z_step, now, before);
}

void Duals::finish(RailExchange& ranks, Exchange& exchange) {
  reader_.read();
  std::vector<admm::Residuals> own;
  for (size_t t = 0; t < norms_.size(); ++t) own.push_back(admm::residuals_of(norms_[t], rho(t)));
  exchange.own = admm::combined(own);
  sum_norms(ranks);
  report(exchange);
  adapt_penalties(exchange);
}

/// The first four norms, or all if the stopping test wants them.
void Duals::sum_norms(RailExchange& ranks) {
  static_assert(sizeof(SquaredNorms) == SquaredNorms::kCount * sizeof(double));
  if (norms_.empty()) return;
  const int64_t count = tests_convergence() ? SquaredNorms::kCount : 4;
  const at::Tensor all =
      at::from_blob(norms_.data(), {static_cast<int64_t>(norms_.size()), SquaredNorms::kCount}, at::kDouble);
  at::Tensor sent = all.slice(1, 0, count).reshape({-1}).clone();
  ranks.sum_over_ranks(sent);
  all.slice(1, 0, count).copy_(sent.view({-1, count}));
}

void Duals::report(Exchange& exchange) const {
  exchange.converged = tests_convergence() && !norms_.empty();
  const double share = 1.0 / static_cast<double>(norms_.size());
  for (size_t t = 0; t < norms_.size(); ++t) {
    const auto residuals = admm::residuals_of(norms_[t], rho(t));
    exchange.residuals.emplace_back(names_[t], residuals);
    exchange.rho1 += rho(t).rho1 * share;
    exchange.rho2 += rho(t).rho2 * share;
    exchange.converged =
        exchange.converged && admm::below_tolerance(norms_[t], residuals, rho(t), cluster(), options_.tolerance);
  }
}

void Duals::adapt_penalties(const Exchange& exchange) {
  const auto next_steps = steps_of(exchange.index + 1);
  for (size_t t = 0; t < rho_.size(); ++t) {
    const auto next =
        admm::next_penalties(options_.penalty, rho_[t], exchange.residuals[t].second, next_steps, cluster());
    admm::rescale_dual(u_[names_[t]], rho_[t].rho1, next.rho1);
    if (at::Tensor* v = v_.find(names_[t])) admm::rescale_dual(*v, rho_[t].rho2, next.rho2);
    rho_[t] = next;
  }
}

admm::StepSizes Duals::steps_of(int64_t iteration) const {
  admm::StepSizes sizes{.sum = 0, .largest = largest_rate_, .momentum = local_.momentum};
  const int64_t end = std::min(iteration * local_.steps, local_.total_steps);
  for (int64_t step = (iteration - 1) * local_.steps + 1; local_.learning_rate && step <= end; ++step) {
    sizes.sum += local_.learning_rate(step);
  }
  return sizes;
}

bool Duals::tests_convergence() const {
  return options_.tolerance > 0;
}

void Duals::set_terms(LocalTerms& terms) const {
  terms.rho1.clear();
  for (size_t t = 0; t < names_.size(); ++t) {
    const at::Tensor &z_node = z_node_[names_[t]], &u = u_[names_[t]];
    at::Tensor* anchor = terms.anchor.find(names_[t]);
    // A difference would have other strides where axes have a single position.
    if (anchor == nullptr) {
      terms.anchor.insert(names_[t], at::empty_strided(z_node.sizes(), z_node.strides(), z_node.options()));
      anchor = terms.anchor.find(names_[t]);
    } else if (anchor->sizes() != z_node.sizes()) {
      *anchor = at::empty_strided(z_node.sizes(), z_node.strides(), z_node.options());
    }
    at::sub_out(*anchor, z_node, u);
    terms.rho1.push_back(rho_[t].rho1);
  }
}

void Duals::mask(const sparsity::Supports& support, bool mask_u) {
  sparsity::apply_supports(v_, shards_.rows(support, mine()));
  if (mask_u) sparsity::apply_supports(u_, support);
}

void Duals::cut(const sparsity::Cut& cut) {
  sparsity::apply_cut(u_, cut);
  sparsity::apply_cut(z_node_, cut);
  sparsity::apply_cut(v_, shards_.rows(cut, mine()));
  v_ = with_rows(v_);
}

void Duals::save(State& state) const {
  store(state.node, State::kZNode, z_node_);
  store(state.rank, "u/", u_);
  store(state.rank, "v/", v_);
  for (size_t t = 0; t < rho_.size(); ++t) {
    state.global.insert("rho/" + names_[t], at::tensor({rho_[t].rho1, rho_[t].rho2}, at::kDouble));
  }
}

void Duals::load(const State& state) {
  restore(z_node_, state.node, State::kZNode);
  restore(u_, state.rank, "u/");
  restore(v_, state.rank, "v/");
  for (size_t t = 0; t < rho_.size(); ++t) {
    const auto [rho1, rho2] = saved_numbers<double, 2>(state.global, "rho/" + names_[t]);
    rho_[t] = {rho1, rho2};
  }
}

}  // namespace prunex::strategies
