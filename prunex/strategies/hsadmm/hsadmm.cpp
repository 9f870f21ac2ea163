#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "prunex/admm/updates.h"
#include "prunex/strategies/dictionaries.h"
#include "prunex/strategies/hsadmm/hsadmm_strategy.h"
#include "prunex/strategies/start.h"

namespace prunex::strategies {

Hsadmm::Hsadmm(Replica& replica, comm::Hierarchy& ranks, HsadmmOptions options)
    : options_((check(options, replica.weights.params), settled(std::move(options)))),
      one_node_(options_.consensus.flat ? std::optional(comm::as_one_node(ranks)) : std::nullopt),
      ranks_(options_.consensus.flat ? *one_node_ : ranks, options_.exchange.form),
      masks_(options_.masks),
      k_(options_.local.exchanges_before),
      z_{clones(replica.weights.params), clones(replica.weights.buffers)},
      work_(z_, options_.exchange, ranks_) {
  if (options_.overlap > 0) {
    between_nodes_.emplace(ranks.between_in_background);
    if (ranks.layout.nodes() == 1) in_node_.emplace(ranks.node_in_background);  // whose ranks exchange there alone
  }
  at::NoGradGuard no_grad;
  start_equal(replica.weights, *ranks.world);
  copy(z_.params, replica.weights.params);
  copy(z_.buffers, replica.weights.buffers);
  if (options_.consensus.penalty.kappa > 0) make_duals();
  set_node_plan();
  set_terms();
}

void Hsadmm::make_duals() {
  duals_.emplace(options_.consensus, options_.local, ranks_.layout(), work_.shards(),
                 names_in_consensus(options_, z_.params), z_.params);
}

Exchange Hsadmm::after_update(Replica& replica, int64_t step) {
  at::NoGradGuard no_grad;
  if (flight_ && step == flight_->end) return land(replica);
  if (!ends_interval(step, options_.local.steps, options_.local.total_steps)) return {};
  ++k_;
  clock_.restart();
  const bool averages = frozen_ && !duals_;
  if (averages && options_.lands_at(step) > step) {
    take_off(replica, step);
    return {};
  }
  Exchange exchange{.index = k_};
  // The others' v do not add up to zero without those of nodes that are lost: z would jump by what is missing.
  if (duals_ && lost_nodes_) duals_->forget_v();
  if (averages) {
    work_.mean_over_ranks(replica.weights, z_.params, clock_);
  } else {
    agree(replica);
  }
  if (duals_) duals_->update(detached(replica.weights.params), work_.tensors(), ranks_.share());
  update_z();
  if (duals_) duals_->finish(ranks_, exchange);
  // Rounding leaves the sum of v not quite zero.
  if (duals_ && rounds()) duals_->mask(support_, false);
  lost_nodes_ = false;
  set_terms();
  restart(replica);
  complete(exchange);
  return exchange;
}

/// work <- the mean of what the nodes' masks leave of their candidates.
void Hsadmm::agree(Replica& replica) {
  collect(replica);
  work_.sum_in_node(frozen_);  // once frozen only what is alive moves
  clock_.end("intra", static_cast<size_t>(work_.nbytes()));
  update_node_candidate();
  update_masks(replica);
  if (duals_) share_z_node();
  work_.mean_over_nodes(z_.params, clock_);
  // The sum of v is what messages have left out (Eq. 13); what Eq. 9 leaves of it is in the next ones: not twice.
  if (duals_) work_.forget_left_out([this](const std::string& name) { return duals_->hold(name); });
}

void Hsadmm::complete(Exchange& exchange) {
  clock_.end("dual");
  exchange.exchanged = true;
  exchange.index = k_;
  exchange.frozen = frozen_;
  exchange.keep = masks_.kept_share();
  exchange.mask_changes = masks_.changes();
  exchange.phases = clock_.phases();
}

void Hsadmm::take_off(const Replica& replica, int64_t step) {
  const at::Tensor taken = work_.take(replica.weights, clock_);
  flight_.emplace(Flight{step, options_.lands_at(step), clones(replica.weights.params)});
  background_.add(taken.device(), [this, taken] {
    at::NoGradGuard no_grad;
    work_.mean_of_taken(taken, z_.params, clock_);
  });
}

/// z from the mean; theta goes there, with what it has moved since it was sent.
Exchange Hsadmm::land(Replica& replica) {
  const Flight flight = std::move(*std::exchange(flight_, std::nullopt));
  Exchange exchange{.overlapped = flight.end - flight.begin};
  background_.wait();
  clock_.skip();
  work_.give_mean(clock_);
  update_z();
  for (auto& theta : replica.weights.params) {
    theta.value().sub_(flight.sent[theta.key()]).add_(z_.params[theta.key()]);
  }
  restart_buffers(replica);
  complete(exchange);
  return exchange;
}

/// work <- theta + u, averaged parameters and buffers of this rank.
void Hsadmm::collect(const Replica& replica) {
  for (auto& work : work_.tensors()) {
    const at::Tensor* theta = replica.weights.params.find(work.key());
    if (theta == nullptr) {
      work.value().copy_(replica.weights.buffers[work.key()]);
    } else if (duals_ && duals_->hold(work.key())) {
      at::add_out(work.value(), theta->detach(), duals_->u(work.key()));
    } else {
      work.value().copy_(theta->detach());
    }
  }
}

/// Own rows of work <- Eq. 9 for the parameters in ADMM, the node's mean for everything else.
void Hsadmm::update_node_candidate() {
  TensorDict sums = work_.rows();
  for (auto& tensor : sums) {
    if (!duals_ || !duals_->hold(tensor.key())) tensor.value().div_(ranks_.layout().ranks_here());
  }
  if (duals_) duals_->update_candidate(work_.tensors(), z_.params);
  clock_.end("project");
}

/// This rank's share of the scores of the node's candidate.
std::vector<at::Tensor> Hsadmm::node_scores(const Replica& replica) {
  if (masks_.groups().empty()) return {};
  if (!options_.masks.score) {
    work_.clear_other_rows();  // the sum over ranks is the whole norm
    return sparsity::unit_scores(masks_.groups(), work_.tensors());
  }
  work_.gather_in_node();
  return masks_.shares_of_scores(work_.as_weights(z_.params, replica.weights.buffers), ranks_);
}

/// Own rows of work <- Eq. 10: what the node's masks leave of them.
void Hsadmm::update_masks(Replica& replica) {
  if (!frozen_ && masks_.freezes_at(k_)) {
    freeze(replica);
  } else if (!frozen_) {
    const bool score = !options_.masks.score || masks_.prunes_at(k_);
    masks_.update(k_, score ? node_scores(replica) : masks_.equal_scores(), ranks_);
    if (masks_.changes() > 0) {
      set_support();
    } else if (options_.masks.rule == MaskRule::kUnion) {
      set_node_plan();
    }
  }
  sparsity::apply_supports(work_.tensors(), node_support());
  clock_.end("mask");
}

/// What Eq. 10 leaves of the node's candidate.
sparsity::Supports Hsadmm::node_support() const {
  return frozen_ ? support_ : masks_.support_of_node(support_, z_.params);
}

void Hsadmm::set_support() {
  support_ = sparsity::supports_of(masks_.groups(), masks_.global(), z_.params);
  work_.set_alive(support_);
  use_support();
}

void Hsadmm::use_support() {
  set_node_plan();
  terms_.masks = frozen_ && options_.masks.mask_theta ? gradient_masks(support_, z_.params) : TensorDict();
}

void Hsadmm::set_node_plan() {
  if (duals_) node_ = ShardedCompaction(work_.shards(), duals_->z_node(), node_support());
}

void Hsadmm::freeze(Replica& replica) {
  masks_.freeze(node_scores(replica), ranks_);
  // What messages have left out is in v, which may end here.
  if (duals_ && rounds() && options_.after_freeze != AfterFreeze::kAdmm) duals_->add_v(work_.tensors(), ranks_.share());
  keep_masks();
  for (auto& state : replica.optimizer) sparsity::apply_supports(state.value(), support_);
  if (options_.masks.mask_theta) sparsity::apply_supports(replica.weights.params, support_);
}

/// From here on they are final.
void Hsadmm::keep_masks() {
  frozen_ = true;
  set_support();
  if (duals_) duals_->mask(support_, options_.masks.mask_theta);
  if (options_.after_freeze != AfterFreeze::kAdmm) duals_.reset();
}

/// Every rank's z_node <- the node's candidate, from the rows of all; own rows of work <- z_node + v, whose mean over
/// nodes inside the hull of the global masks is Eq. 11. Outside it the mean is zero, as the P_i v_i add up to zero.
/// With shares s_i of mean 1 it is that of s_i z_node + v_i, and Eq. 13 v_i += s_i (z_node - mean): the sum stays zero,
/// and nodes that agree stay where they are, however shares change. Were v weighted as z_node is, neither would hold.
void Hsadmm::share_z_node() {
  duals_->note_candidate(work_.tensors());
  work_.share_in_node(node_, duals_->z_node());
  duals_->add_v(work_.tensors(), ranks_.share());
}

bool Hsadmm::takes_outer_step() const {
  if (options_.outer.from > 0) return k_ >= options_.outer.from;
  return frozen_ && options_.after_freeze == AfterFreeze::kNesterov;
}

/// z <- the mean, or the outer step towards it.
void Hsadmm::update_z() {
  for (auto& buffer : z_.buffers) {
    if (work_.holds(buffer.key())) buffer.value().copy_(work_.tensors()[buffer.key()]);
  }
  if (!takes_outer_step()) {
    for (auto& z : z_.params) {
      const at::Tensor rows = rows_in_consensus(z.key(), z.value());
      if (rows.defined()) duals_->note_z(z.key(), rows, rows_in_consensus(z.key(), work_.tensors()[z.key()]));
      z.value().copy_(work_.tensors()[z.key()]);
    }
    return;
  }
  if (outer_.is_empty()) outer_ = zeros_like(z_.params);
  for (auto& z : z_.params) {
    const at::Tensor rows = rows_in_consensus(z.key(), z.value());
    const at::Tensor before = rows.defined() ? rows.clone() : rows;
    if (const sparsity::Support* alive = support_.find(z.key())) {
      sparsity::apply_support(z.value(), *alive);
      sparsity::apply_support(outer_[z.key()], *alive);
    }
    admm::outer_step(z.value(), work_.tensors()[z.key()], outer_[z.key()], options_.outer.rate,
                     options_.outer.momentum);
    if (rows.defined()) duals_->note_z(z.key(), before, rows);
  }
}

/// My rows, if residuals are taken of the tensor.
at::Tensor Hsadmm::rows_in_consensus(const std::string& name, const at::Tensor& tensor) const {
  return duals_ && duals_->hold(name) ? work_.shards().rows(name, tensor, mine()) : at::Tensor();
}

/// Theta for the next iteration: z, or the rank's own for the parameters that duals hold.
void Hsadmm::restart(Replica& replica) {
  for (auto& theta : replica.weights.params) {
    const bool own = options_.consensus.start_from == StartFrom::kTheta && duals_ && duals_->hold(theta.key());
    if (!own) theta.value().copy_(z_.params[theta.key()]);
  }
  restart_buffers(replica);
}

void Hsadmm::restart_buffers(Replica& replica) {
  for (auto& buffer : replica.weights.buffers) {
    const bool averaged = work_.holds(buffer.key());  // counters are equal on all ranks: same number of steps
    averaged ? buffer.value().copy_(z_.buffers[buffer.key()]) : z_.buffers[buffer.key()].copy_(buffer.value());
  }
}

void Hsadmm::set_terms() {
  if (duals_) return duals_->set_terms(terms_);
  terms_.anchor = TensorDict();
  terms_.rho1.clear();
}

void Hsadmm::finish() {
  TORCH_CHECK(!flight_, "[strategies] finish() while an exchange is on its way");
  if (frozen_ || masks_.groups().empty()) return;
  at::NoGradGuard no_grad;
  if (options_.masks.score) {
    masks_.freeze(masks_.shares_of_scores(z_, ranks_), ranks_);
  } else {
    masks_.freeze(sparsity::unit_scores(masks_.groups(), z_.params));
  }
  keep_masks();
  sparsity::apply_supports(z_.params, support_);
  set_terms();
}

std::unique_ptr<Strategy> make_hsadmm(Replica& replica, comm::Hierarchy& ranks, HsadmmOptions options) {
  const bool shares = options.consensus.flat || ranks.layout.world_size() > ranks.layout.nodes();
  if (shares || !options.masks.groups.empty()) expect_rows(replica.weights.params);
  return std::make_unique<Hsadmm>(replica, ranks, std::move(options));
}

}  // namespace prunex::strategies
