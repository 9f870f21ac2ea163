#include "prunex/strategies/hsadmm.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include "prunex/admm/updates.h"
#include "prunex/sparsity/compaction.h"

namespace prunex::strategies {
namespace {

using admm::SquaredNorms;
using sparsity::Compaction;

/// Adds the time since the last call to one phase after the other.
class PhaseClock {
 public:
  void add_to(double& seconds) {
    const auto now = std::chrono::steady_clock::now();
    seconds += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

/// A second name for the tensors, without autograd history.
TensorDict detached(const TensorDict& tensors) {
  TensorDict result;
  for (const auto& tensor : tensors) result.insert(tensor.key(), tensor.value().detach());
  return result;
}

TensorDict clones(const TensorDict& tensors) {
  TensorDict copies;
  for (const auto& tensor : tensors) copies.insert(tensor.key(), tensor.value().detach().clone());
  return copies;
}

TensorDict clones(const TensorDict& tensors, const std::vector<std::string>& names) {
  TensorDict copies;
  for (const auto& name : names) copies.insert(name, tensors[name].detach().clone());
  return copies;
}

TensorDict zeros_like(const TensorDict& tensors) {
  TensorDict zeros;
  for (const auto& tensor : tensors) zeros.insert(tensor.key(), at::zeros_like(tensor.value()));
  return zeros;
}

HsadmmOptions checked(HsadmmOptions options, const TensorDict& params) {
  admm::check(options.penalty);
  if (options.local_steps < 1 || options.total_steps < 1) {
    throw std::invalid_argument(
        fmt::format("--local-steps: got {} of {} steps, wanted 1 or more", options.local_steps, options.total_steps));
  }
  if (options.penalty.kappa == 0 && options.start_from == StartFrom::kTheta) {
    throw std::invalid_argument("--start-from theta: needs --kappa above 0, or ranks never hear of each other");
  }
  if (options.penalty.kappa > 0 && options.penalty.rule == admm::PenaltyRule::kKappa && !options.learning_rate) {
    throw std::invalid_argument("learning_rate: got none, wanted a function of the step: the kappa rule needs it");
  }
  sparsity::check_groups(options.groups, params);
  return options;
}

class Hsadmm final : public Strategy {
 public:
  Hsadmm(Replica& replica, comm::Hierarchy& ranks, HsadmmOptions options);

  const LocalTerms& local_terms() const override { return terms_; }
  void before_update(Replica&) override {}
  Exchange after_update(Replica& replica, int64_t step) override;
  void finish() override;
  const Weights& product() const override { return z_; }
  const sparsity::Masks& masks() const override { return masks_.global(); }
  void cut(const sparsity::Cut& cut) override;
  TensorDict state() const override;
  void load(const TensorDict& state, const sparsity::Cut* cut) override;

 private:
  // The steps of an exchange in their order; docs/algorithm.md, section 3.
  void sum_in_node(const TensorDict& theta, const TensorDict& buffers);
  void update_node_candidate();
  void update_masks(Replica& replica);
  void mean_over_nodes();
  void update_z();
  void update_duals(const TensorDict& theta, Exchange& exchange);
  void restart(Replica& replica);

  bool freezes_now() const;
  void freeze(Replica& replica);
  void drop_duals();
  void set_support();
  bool takes_outer_step() const;
  bool tests_convergence() const { return options_.tolerance.absolute > 0 || options_.tolerance.relative > 0; }
  SquaredNorms norms_of(const std::string& name, const at::Tensor& theta) const;
  std::vector<SquaredNorms> sums_over_ranks(const std::vector<SquaredNorms>& mine);
  void report(const std::vector<SquaredNorms>& sums, Exchange& exchange);
  void adapt_penalties(const Exchange& exchange);
  admm::StepSizes steps_of(int64_t iteration) const;
  void set_anchor();
  void set_gradient_masks();

  HsadmmOptions options_;
  LeaderExchange exchange_;
  MaskConsensus masks_;
  int64_t k_ = 0;
  bool frozen_ = false;
  bool duals_;               // whether u, v and the penalties exist; else plain averages
  double largest_rate_ = 0;  // learning rate of the whole run

  std::vector<std::string> consensus_;  // parameters in ADMM; the others and the buffers are averaged
  Weights z_;
  TensorDict u_, v_, z_node_;  // of `consensus_`, while duals_
  TensorDict z_before_, z_node_before_;
  std::vector<admm::Penalties> rho_;  // of `consensus_`
  TensorDict outer_;                  // b of the outer step; empty before the first
  TensorDict work_;                   // parameters and floating-point buffers: sums, candidates, then means

  sparsity::Supports support_;  // of the global masks
  Compaction dense_, compact_;  // of work_: everything; what is alive
  at::Tensor buffer_;
  LocalTerms terms_;
};

Hsadmm::Hsadmm(Replica& replica, comm::Hierarchy& ranks, HsadmmOptions options)
    : options_(checked(std::move(options), replica.weights.params)),
      exchange_(ranks),
      masks_(options_.groups, options_.keep, options_.mask_rule),
      duals_(options_.penalty.kappa > 0) {
  at::NoGradGuard no_grad;
  for (auto& tensor : replica.weights.params) ranks.world->broadcast(tensor.value());
  for (auto& tensor : replica.weights.buffers) ranks.world->broadcast(tensor.value());

  z_ = {clones(replica.weights.params), clones(replica.weights.buffers)};
  work_ = clones(z_.params);
  for (const auto& buffer : z_.buffers) {
    if (buffer.value().is_floating_point()) work_.insert(buffer.key(), buffer.value().clone());
  }
  dense_ = compact_ = Compaction(work_, sparsity::Supports());
  buffer_ = at::empty({0}, work_.front().value().options().memory_format(at::MemoryFormat::Contiguous));

  std::unordered_set<std::string> grouped;
  for (const auto& group : masks_.groups()) {
    for (const auto& slice : group.slices) grouped.insert(slice.tensor);
  }
  for (const auto& name : z_.params.keys()) {
    if (options_.aux == AuxTensors::kAdmm || grouped.contains(name)) consensus_.push_back(name);
  }
  if (!duals_) return;
  for (int64_t step = 1; options_.learning_rate && step <= options_.total_steps; ++step) {
    largest_rate_ = std::max(largest_rate_, options_.learning_rate(step));
  }
  z_node_ = clones(z_.params, consensus_);
  u_ = zeros_like(z_node_);
  v_ = zeros_like(z_node_);
  rho_.assign(consensus_.size(),
              admm::first_penalties(options_.penalty, steps_of(1), exchange_.nodes(), exchange_.ranks_here()));
  set_anchor();
}

Exchange Hsadmm::after_update(Replica& replica, int64_t step) {
  if (step % options_.local_steps != 0 && step != options_.total_steps) return {};
  at::NoGradGuard no_grad;
  ++k_;
  Exchange exchange{.exchanged = true, .index = k_};
  PhaseClock clock;
  const TensorDict theta = detached(replica.weights.params);
  sum_in_node(theta, replica.weights.buffers);
  clock.add_to(exchange.seconds.intra);
  update_node_candidate();
  update_masks(replica);
  clock.add_to(exchange.seconds.project);
  mean_over_nodes();
  clock.add_to(exchange.seconds.inter);
  update_z();
  update_duals(theta, exchange);
  restart(replica);
  clock.add_to(exchange.seconds.dual);
  exchange.frozen = frozen_;
  exchange.keep = masks_.kept_share();
  exchange.mask_changes = masks_.changes();
  return exchange;
}

/// work <- sum over the node of theta + u, of averaged parameters and of buffers. Once frozen only what is alive moves.
void Hsadmm::sum_in_node(const TensorDict& theta, const TensorDict& buffers) {
  for (const auto& tensor : theta) work_[tensor.key()].copy_(tensor.value());
  for (const auto& buffer : buffers) {
    if (at::Tensor* work = work_.find(buffer.key())) work->copy_(buffer.value());
  }
  for (const auto& u : u_) work_[u.key()].add_(u.value());
  if (exchange_.ranks_here() == 1) return;
  const Compaction& plan = frozen_ ? compact_ : dense_;
  buffer_.resize_({plan.numel()});
  plan.pack(work_, buffer_);
  exchange_.sum_in_node(buffer_);
  plan.unpack(buffer_, work_);
}

/// work <- Eq. 9 for the parameters in ADMM, the node's mean for everything else.
void Hsadmm::update_node_candidate() {
  const double ranks = exchange_.ranks_here();
  for (auto& tensor : work_) {
    if (u_.find(tensor.key()) == nullptr) tensor.value().div_(ranks);
  }
  for (size_t t = 0; t < u_.size(); ++t) {
    const auto& name = consensus_[t];
    admm::update_node_candidate(
        work_[name], z_.params[name], v_[name],
        {.rho1 = rho_[t].rho1, .rho2 = rho_[t].rho2, .ranks = ranks, .lambda = options_.lambda});
  }
}

bool Hsadmm::freezes_now() const {
  const bool stable = options_.freeze_when_stable > 0 && masks_.stable() >= options_.freeze_when_stable;
  return !frozen_ && (k_ > options_.freeze_after || (stable && k_ >= options_.keep.end));
}

/// work <- Eq. 10: what the node's masks leave of it.
void Hsadmm::update_masks(Replica& replica) {
  if (freezes_now()) {
    freeze(replica);
  } else if (!frozen_) {
    masks_.update(k_, work_, exchange_);
    set_support();
  }
  const bool own = options_.mask_rule == MaskRule::kUnion && !frozen_;
  sparsity::apply_supports(work_, own ? sparsity::supports_of(masks_.groups(), masks_.node(), z_.params) : support_);
}

void Hsadmm::set_support() {
  support_ = sparsity::supports_of(masks_.groups(), masks_.global(), z_.params);
  compact_ = Compaction(work_, support_);
}

void Hsadmm::freeze(Replica& replica) {
  if (options_.freeze_masks == FreezeMasks::kScores) {
    masks_.freeze(work_, exchange_);
  } else {
    masks_.freeze();
  }
  frozen_ = true;
  set_support();
  sparsity::apply_supports(v_, support_);
  sparsity::apply_supports(replica.momentum, support_);
  if (options_.mask_theta) {
    sparsity::apply_supports(replica.weights.params, support_);
    sparsity::apply_supports(u_, support_);
    set_gradient_masks();
  }
  if (options_.after_freeze != AfterFreeze::kAdmm) drop_duals();
}

void Hsadmm::drop_duals() {
  duals_ = false;
  u_ = v_ = z_node_ = z_before_ = z_node_before_ = TensorDict();
  terms_.anchor = TensorDict();
  terms_.rho1.clear();
}

/// work <- mean over nodes of z_node + v inside the hull of the global masks, zero outside: Eq. 11 and 15. Outside it
/// the mean is zero anyway, because the v of all nodes add up to zero.
void Hsadmm::mean_over_nodes() {
  if (duals_) {
    z_node_before_ = std::exchange(z_node_, clones(work_, consensus_));
    for (const auto& v : v_) work_[v.key()].add_(v.value());
  }
  buffer_.resize_({compact_.numel()});
  compact_.pack(work_, buffer_);
  exchange_.reduce_over_nodes(buffer_);
  buffer_.div_(exchange_.nodes());
  compact_.unpack(buffer_, work_);
}

bool Hsadmm::takes_outer_step() const {
  if (options_.outer_from > 0) return k_ >= options_.outer_from;
  return frozen_ && options_.after_freeze == AfterFreeze::kNesterov;
}

/// z <- the mean, or the outer step towards it.
void Hsadmm::update_z() {
  if (duals_) z_before_ = clones(z_.params, consensus_);
  for (auto& buffer : z_.buffers) {
    if (const at::Tensor* mean = work_.find(buffer.key())) buffer.value().copy_(*mean);
  }
  if (!takes_outer_step()) {
    for (auto& z : z_.params) z.value().copy_(work_[z.key()]);
    return;
  }
  if (outer_.is_empty()) outer_ = zeros_like(z_.params);
  sparsity::apply_supports(z_.params, support_);
  sparsity::apply_supports(outer_, support_);
  for (auto& z : z_.params) {
    admm::outer_step(z.value(), work_[z.key()], outer_[z.key()], options_.outer_rate, options_.outer_momentum);
  }
}

/// Eq. 12 and 13, with the mean as the z that nodes agree on; then residuals and the penalties of the next iteration.
void Hsadmm::update_duals(const TensorDict& theta, Exchange& exchange) {
  if (!duals_) return;
  std::vector<SquaredNorms> norms;
  for (const auto& name : consensus_) {
    admm::update_v(v_[name], z_node_[name], work_[name]);
    admm::update_u(u_[name], theta[name], z_node_[name]);
    norms.push_back(norms_of(name, theta[name]));
  }
  report(sums_over_ranks(norms), exchange);
  adapt_penalties(exchange);
  set_anchor();
}

SquaredNorms Hsadmm::norms_of(const std::string& name, const at::Tensor& theta) const {
  const at::Tensor& z_node = z_node_[name];
  SquaredNorms norms{.theta_gap = admm::squared_distance(theta, z_node),
                     .z_node_step = admm::squared_distance(z_node, z_node_before_[name]),
                     .node_gap = admm::squared_distance(z_node, z_.params[name]),
                     .z_step = admm::squared_distance(z_.params[name], z_before_[name])};
  if (!tests_convergence()) return norms;
  norms.theta = admm::squared_norm(theta);
  norms.z_node = admm::squared_norm(z_node);
  norms.u = admm::squared_norm(u_[name]);
  norms.v = admm::squared_norm(v_[name]);
  return norms;
}

/// The first four norms, or all if the stopping test wants them.
std::vector<SquaredNorms> Hsadmm::sums_over_ranks(const std::vector<SquaredNorms>& mine) {
  static_assert(sizeof(SquaredNorms) == SquaredNorms::kCount * sizeof(double));
  if (mine.empty()) return mine;
  std::vector<SquaredNorms> sums = mine;
  const at::Tensor all =
      at::from_blob(sums.data(), {static_cast<int64_t>(sums.size()), SquaredNorms::kCount}, at::kDouble);
  at::Tensor sent = all.slice(1, 0, tests_convergence() ? SquaredNorms::kCount : 4).contiguous();
  exchange_.sum_over_ranks(sent);
  all.slice(1, 0, sent.size(1)).copy_(sent);
  return sums;
}

void Hsadmm::report(const std::vector<SquaredNorms>& sums, Exchange& exchange) {
  const int64_t nodes = exchange_.nodes(), ranks = exchange_.ranks_here();
  exchange.converged = tests_convergence() && !sums.empty();
  for (size_t t = 0; t < sums.size(); ++t) {
    const auto& [rho1, rho2] = rho_[t];
    const auto& name = consensus_[t];
    const auto residuals = admm::residuals_of(sums[t], rho1, rho2, nodes, ranks);
    exchange.residuals.emplace_back(name, residuals);
    exchange.rho1 += rho1 / static_cast<double>(sums.size());
    exchange.rho2 += rho2 / static_cast<double>(sums.size());
    exchange.converged =
        exchange.converged && admm::below_tolerance(sums[t], residuals, rho1, rho2, z_.params[name].numel(), nodes,
                                                    ranks, options_.tolerance);
  }
}

void Hsadmm::adapt_penalties(const Exchange& exchange) {
  for (size_t t = 0; t < rho_.size(); ++t) {
    const auto next = admm::next_penalties(options_.penalty, rho_[t], exchange.residuals[t].second, k_,
                                           steps_of(k_ + 1), exchange_.nodes(), exchange_.ranks_here());
    admm::rescale_dual(u_[consensus_[t]], rho_[t].rho1, next.rho1);
    admm::rescale_dual(v_[consensus_[t]], rho_[t].rho2, next.rho2);
    rho_[t] = next;
  }
}

admm::StepSizes Hsadmm::steps_of(int64_t iteration) const {
  admm::StepSizes sizes{.sum = 0, .largest = largest_rate_, .momentum = options_.momentum};
  const int64_t end = std::min(iteration * options_.local_steps, options_.total_steps);
  for (int64_t step = (iteration - 1) * options_.local_steps + 1; options_.learning_rate && step <= end; ++step) {
    sizes.sum += options_.learning_rate(step);
  }
  return sizes;
}

/// Theta for the next iteration: z, or the rank's own for the parameters that duals hold.
void Hsadmm::restart(Replica& replica) {
  for (auto& theta : replica.weights.params) {
    const bool own = options_.start_from == StartFrom::kTheta && u_.find(theta.key()) != nullptr;
    if (!own) theta.value().copy_(z_.params[theta.key()]);
  }
  for (auto& buffer : replica.weights.buffers) {
    const bool averaged = work_.find(buffer.key()) != nullptr;  // counters are equal on all ranks: same number of steps
    averaged ? buffer.value().copy_(z_.buffers[buffer.key()]) : z_.buffers[buffer.key()].copy_(buffer.value());
  }
}

void Hsadmm::set_anchor() {
  terms_.anchor = TensorDict();
  terms_.rho1.clear();
  for (size_t t = 0; t < consensus_.size(); ++t) {
    const auto& name = consensus_[t];
    terms_.anchor.insert(name, z_node_[name] - u_[name]);
    terms_.rho1.push_back(rho_[t].rho1);
  }
}

void Hsadmm::set_gradient_masks() {
  terms_.masks = TensorDict();
  for (const auto& support : support_) {
    if (support.value().full()) continue;
    at::Tensor mask = at::ones_like(z_.params[support.key()]);
    sparsity::apply_support(mask, support.value());
    terms_.masks.insert(support.key(), mask);
  }
}

void Hsadmm::finish() {
  if (frozen_ || masks_.groups().empty()) return;
  at::NoGradGuard no_grad;
  masks_.freeze(z_.params);
  set_support();
  sparsity::apply_supports(z_.params, support_);
}

void Hsadmm::cut(const sparsity::Cut& cut) {
  TORCH_CHECK(frozen_, "[strategies] a cut before the masks are final");
  at::NoGradGuard no_grad;
  sparsity::apply_cut(z_, cut);
  for (TensorDict* tensors : {&u_, &v_, &z_node_, &outer_, &work_}) sparsity::apply_cut(*tensors, cut);
  support_ = sparsity::apply_cut(support_, cut);
  dense_ = Compaction(work_, sparsity::Supports());
  compact_ = Compaction(work_, support_);
  if (options_.mask_theta) set_gradient_masks();
  if (duals_) set_anchor();
}

TensorDict Hsadmm::state() const {
  TensorDict state;
  const auto add = [&state](const std::string& room, const TensorDict& tensors) {
    for (const auto& tensor : tensors) state.insert(room + tensor.key(), tensor.value());
  };
  add("z/", z_.params);
  add("z/", z_.buffers);
  add("z_node/", z_node_);
  add("u/", u_);
  add("v/", v_);
  add("outer/", outer_);
  add("mask/", masks_.global());
  add("node_mask/", masks_.node());
  state.insert("progress", at::tensor({k_, int64_t{frozen_}, int64_t{duals_}, masks_.stable()}, at::kLong));
  for (size_t t = 0; duals_ && t < rho_.size(); ++t) {
    state.insert("rho/" + consensus_[t], at::tensor({rho_[t].rho1, rho_[t].rho2}, at::kDouble));
  }
  return state;
}

void Hsadmm::load(const TensorDict& state, const sparsity::Cut* cut_before) {
  at::NoGradGuard no_grad;
  const int64_t* progress = state["progress"].const_data_ptr<int64_t>();
  k_ = progress[0];
  frozen_ = progress[1] != 0;
  sparsity::Masks node, global;
  for (const auto& group : masks_.groups()) {
    node.insert(group.name, state["node_mask/" + group.name].clone());
    global.insert(group.name, state["mask/" + group.name].clone());
  }
  masks_.restore(std::move(node), std::move(global), progress[3]);
  set_support();
  if (duals_ && progress[2] == 0) drop_duals();
  if (frozen_ && options_.mask_theta) set_gradient_masks();
  for (const auto& item : state) {
    if (item.key().starts_with("outer/") && outer_.is_empty()) outer_ = zeros_like(z_.params);
  }
  if (cut_before != nullptr) cut(*cut_before);

  const auto copy = [&state](const std::string& room, TensorDict& tensors) {
    for (auto& tensor : tensors) tensor.value().copy_(state[room + tensor.key()]);
  };
  copy("z/", z_.params);
  copy("z/", z_.buffers);
  copy("z_node/", z_node_);
  copy("u/", u_);
  copy("v/", v_);
  copy("outer/", outer_);
  if (!duals_) return;
  for (size_t t = 0; t < rho_.size(); ++t) {
    const double* rho = state["rho/" + consensus_[t]].const_data_ptr<double>();
    rho_[t] = {rho[0], rho[1]};
  }
  set_anchor();
}

}  // namespace

std::unique_ptr<Strategy> make_hsadmm(Replica& replica, comm::Hierarchy& ranks, HsadmmOptions options) {
  return std::make_unique<Hsadmm>(replica, ranks, std::move(options));
}

}  // namespace prunex::strategies
