#include "prunex/strategies/hsadmm.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include "prunex/admm/updates.h"
#include "prunex/strategies/dictionaries.h"
#include "prunex/strategies/phase_clock.h"
#include "prunex/strategies/row_feedback.h"
#include "prunex/strategies/row_shards.h"

namespace prunex::strategies {
namespace {

HsadmmOptions checked(HsadmmOptions options, const TensorDict& params) {
  admm::check(options.consensus.penalty);
  if (options.local.steps < 1 || options.local.total_steps < 1) {
    throw std::invalid_argument(fmt::format("--local-steps: got {} of {} steps, wanted 1 or more", options.local.steps,
                                            options.local.total_steps));
  }
  if (options.consensus.penalty.kappa == 0 && options.consensus.start_from == StartFrom::kTheta) {
    throw std::invalid_argument("--start-from theta: needs --kappa above 0, or ranks never hear of each other");
  }
  if (options.consensus.penalty.kappa > 0 && options.consensus.penalty.rule == admm::PenaltyRule::kKappa &&
      !options.local.learning_rate) {
    throw std::invalid_argument("learning_rate: got none, wanted a function of the step: the kappa rule needs it");
  }
  sparsity::check_groups(options.masks.groups, params);
  return options;
}

/// What nodes exchange: parameters, vectors last, and with fp32 the floating-point buffers.
TensorDict exchanged_tensors(const Weights& weights, Payload payload) {
  TensorDict matrices, vectors;
  for (const auto& tensor : weights.params) {
    (tensor.value().dim() > 1 ? matrices : vectors).insert(tensor.key(), tensor.value().detach().clone());
  }
  matrices.update(vectors);
  if (payload != Payload::kFp32) return matrices;
  for (const auto& buffer : weights.buffers) {
    if (buffer.value().is_floating_point()) matrices.insert(buffer.key(), buffer.value().clone());
  }
  return matrices;
}

/// Parameters under a proximal term: the members of groups, or all.
std::vector<std::string> names_in_consensus(const HsadmmOptions& options, const TensorDict& params) {
  std::unordered_set<std::string> grouped;
  for (const auto& group : options.masks.groups) {
    for (const auto& slice : group.slices) grouped.insert(slice.tensor);
  }
  std::vector<std::string> names;
  for (const auto& name : params.keys()) {
    if (options.consensus.aux == AuxTensors::kAdmm || grouped.contains(name)) names.push_back(name);
  }
  return names;
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
  void cut(const sparsity::Cut& cut, Replica& replica) override;
  TensorDict state() const override;
  void load(const TensorDict& state, const sparsity::Cut* cut, Replica& replica) override;

 private:
  // The steps of an exchange in their order; docs/algorithm.md, section 3.
  void collect(const Replica& replica);
  void sum_in_node();
  void update_node_candidate();
  void update_masks(Replica& replica);
  std::vector<at::Tensor> node_scores(const Replica& replica);
  std::vector<at::Tensor> shares_of_scores(const Weights& candidate);
  void share_z_node();
  void mean_over_nodes();
  void mean_over_ranks();
  void average_over_nodes(at::Tensor& part);
  void update_z();
  void restart(Replica& replica);

  bool freezes_now() const;
  void freeze(Replica& replica);
  void set_support();
  sparsity::Supports support_of_node() const;
  void clear_other_rows();
  bool takes_outer_step() const;
  void set_terms();
  void set_gradient_masks();
  at::Tensor& buffer_of(const ShardedCompaction& plan);
  int mine() const { return ranks_.mine(); }

  HsadmmOptions options_;
  std::optional<comm::Hierarchy> one_node_;
  RailExchange ranks_;
  MaskConsensus masks_;
  PhaseClock clock_;
  int64_t k_ = 0;
  bool frozen_ = false;

  Weights z_;
  TensorDict outer_;  // b of the outer step; empty before the first
  TensorDict work_;   // parameters and floating-point buffers: sums, candidates, then means
  RowShards shards_;  // of work_
  std::optional<Duals> duals_;
  std::optional<RowFeedback> feedback_;  // of rounded messages

  sparsity::Supports support_;         // of the global masks
  ShardedCompaction dense_, compact_;  // of work_: everything; what is alive
  at::Tensor buffer_;
  LocalTerms terms_;
};

Hsadmm::Hsadmm(Replica& replica, comm::Hierarchy& ranks, HsadmmOptions options)
    : options_(checked(std::move(options), replica.weights.params)),
      one_node_(options_.consensus.flat ? std::optional(comm::as_one_node(ranks)) : std::nullopt),
      ranks_(options_.consensus.flat ? *one_node_ : ranks, options_.exchange.form),
      masks_(options_.masks),
      k_(options_.local.exchanges_before) {
  at::NoGradGuard no_grad;
  for (auto& tensor : replica.weights.params) ranks.world->broadcast(tensor.value());
  for (auto& tensor : replica.weights.buffers) ranks.world->broadcast(tensor.value());

  z_ = {clones(replica.weights.params), clones(replica.weights.buffers)};
  work_ = exchanged_tensors(z_, options_.exchange.payload);
  shards_ = RowShards(work_, ranks_.rails(), ranks_.layout().ranks_here());
  dense_ = compact_ = ShardedCompaction(shards_, work_, sparsity::Supports());
  buffer_ = at::empty({0}, work_.front().value().options().memory_format(at::MemoryFormat::Contiguous));
  if (options_.consensus.penalty.kappa > 0) {
    duals_.emplace(options_.consensus, options_.local, ranks_.layout(), shards_,
                   names_in_consensus(options_, z_.params), z_.params);
  }
  if (options_.exchange.payload != Payload::kFp32) feedback_.emplace(shards_, work_, mine());
  set_terms();
}

Exchange Hsadmm::after_update(Replica& replica, int64_t step) {
  if (step % options_.local.steps != 0 && step != options_.local.total_steps) return {};
  at::NoGradGuard no_grad;
  ++k_;
  Exchange exchange{.exchanged = true, .index = k_};
  clock_.restart();
  collect(replica);
  if (frozen_ && !duals_) {
    mean_over_ranks();
  } else {
    sum_in_node();
    update_node_candidate();
    update_masks(replica);
    mean_over_nodes();
  }
  update_z();
  if (duals_) duals_->update(detached(replica.weights.params), work_, z_.params, ranks_, exchange);
  if (duals_ && feedback_) duals_->mask(support_, false);  // rounding leaves the sum of v not quite zero
  set_terms();
  restart(replica);
  clock_.end("dual");
  exchange.frozen = frozen_;
  exchange.keep = masks_.kept_share();
  exchange.mask_changes = masks_.changes();
  exchange.phases = clock_.phases();
  return exchange;
}

at::Tensor& Hsadmm::buffer_of(const ShardedCompaction& plan) {
  buffer_.resize_({plan.numel()});
  return buffer_;
}

/// work <- theta + u, averaged parameters and buffers of this rank.
void Hsadmm::collect(const Replica& replica) {
  for (const auto& tensor : replica.weights.params) work_[tensor.key()].copy_(tensor.value().detach());
  for (const auto& buffer : replica.weights.buffers) {
    if (at::Tensor* work = work_.find(buffer.key())) work->copy_(buffer.value());
  }
  if (duals_) duals_->add_u(work_);
}

/// Own rows of work <- their sum over the node. Once frozen only what is alive moves.
void Hsadmm::sum_in_node() {
  if (ranks_.layout().ranks_here() > 1) {
    const auto& plan = frozen_ ? compact_ : dense_;
    at::Tensor& buffer = buffer_of(plan);
    plan.pack(work_, buffer);
    ranks_.scatter_in_node(buffer, plan.parts());
    plan.unpack(buffer, work_, mine());
  }
  clock_.end("intra", buffer_.nbytes());
}

/// Own rows of work <- Eq. 9 for the parameters in ADMM, the node's mean for everything else.
void Hsadmm::update_node_candidate() {
  TensorDict sums = shards_.rows(work_, mine());
  for (auto& tensor : sums) {
    if (!duals_ || !duals_->hold(tensor.key())) tensor.value().div_(ranks_.layout().ranks_here());
  }
  if (duals_) duals_->update_candidate(work_, z_.params);
  clock_.end("project");
}

bool Hsadmm::freezes_now() const {
  const bool stable = options_.masks.freeze_when_stable > 0 && masks_.stable() >= options_.masks.freeze_when_stable;
  return !frozen_ && (k_ > options_.masks.freeze_after || (stable && k_ >= options_.masks.keep.end));
}

/// This rank's share of the scores of the node's candidate.
std::vector<at::Tensor> Hsadmm::node_scores(const Replica& replica) {
  if (masks_.groups().empty()) return {};
  if (!options_.masks.score) {
    clear_other_rows();
    return sparsity::unit_scores(masks_.groups(), work_);
  }
  if (ranks_.layout().ranks_here() > 1) {
    at::Tensor& buffer = buffer_of(dense_);
    dense_.pack(work_, buffer, mine());
    ranks_.gather_in_node(buffer, dense_.parts());
    dense_.unpack(buffer, work_);
  }
  Weights candidate;
  for (const auto& tensor : z_.params) candidate.params.insert(tensor.key(), work_[tensor.key()]);
  for (const auto& buffer : replica.weights.buffers) {
    const at::Tensor* mean = work_.find(buffer.key());
    candidate.buffers.insert(buffer.key(), mean != nullptr ? *mean : buffer.value());
  }
  return shares_of_scores(candidate);
}

/// Ranks that all hold the whole share its scores equally.
std::vector<at::Tensor> Hsadmm::shares_of_scores(const Weights& candidate) {
  auto scores = options_.masks.score(candidate, ranks_.node());
  for (auto& score : scores) score = score / ranks_.layout().ranks_here();
  return scores;
}

/// The sum over ranks is the whole norm: the rows of others must not count.
void Hsadmm::clear_other_rows() {
  for (int shard = 0; shard < shards_.count(); ++shard) {
    if (shard == mine()) continue;
    TensorDict rows = shards_.rows(work_, shard);
    for (auto& tensor : rows) tensor.value().zero_();
  }
}

/// Own rows of work <- Eq. 10: what the node's masks leave of them.
void Hsadmm::update_masks(Replica& replica) {
  if (freezes_now()) {
    freeze(replica);
  } else if (!frozen_) {
    const bool score = !options_.masks.score || masks_.prunes_at(k_);
    masks_.update(k_, score ? node_scores(replica) : masks_.equal_scores(), ranks_);
    set_support();
  }
  sparsity::apply_supports(work_, support_of_node());
  clock_.end("mask");
}

/// What Eq. 10 leaves of the node's candidate.
sparsity::Supports Hsadmm::support_of_node() const {
  const bool own = options_.masks.rule == MaskRule::kUnion && !frozen_;
  return own ? sparsity::supports_of(masks_.groups(), masks_.node(), z_.params) : support_;
}

void Hsadmm::set_support() {
  support_ = sparsity::supports_of(masks_.groups(), masks_.global(), z_.params);
  compact_ = ShardedCompaction(shards_, work_, support_);
}

void Hsadmm::freeze(Replica& replica) {
  if (options_.masks.final == FreezeMasks::kScores) {
    masks_.freeze(node_scores(replica), ranks_);
  } else {
    masks_.freeze();
  }
  frozen_ = true;
  set_support();
  if (duals_) duals_->mask(support_, options_.masks.mask_theta);
  sparsity::apply_supports(replica.momentum, support_);
  if (options_.masks.mask_theta) {
    sparsity::apply_supports(replica.weights.params, support_);
    set_gradient_masks();
  }
  if (options_.after_freeze != AfterFreeze::kAdmm) duals_.reset();
}

/// work <- mean over nodes of z_node + v inside the hull of the global masks, zero outside: Eq. 11 and 15. Outside it
/// the mean is zero anyway, because the P_i v_i add up to zero.
void Hsadmm::mean_over_nodes() {
  if (duals_) {
    duals_->remember(z_.params);
    share_z_node();
    duals_->add_v(work_);
  }
  at::Tensor& buffer = buffer_of(compact_);
  compact_.pack(work_, buffer, mine());
  at::Tensor part = compact_.part_of(buffer, mine());
  clock_.end("pack", part.nbytes());
  average_over_nodes(part);
  ranks_.gather_in_node(buffer, compact_.parts());
  clock_.end("inter", part.nbytes());
  compact_.unpack(buffer, work_);
  clock_.end("unpack");
}

/// Every rank's z_node <- the node's candidate, from the rows of all.
void Hsadmm::share_z_node() {
  TensorDict& z_node = duals_->z_node();
  const ShardedCompaction plan(shards_, z_node, support_of_node());
  TensorDict candidate;
  for (const auto& name : z_node.keys()) candidate.insert(name, work_[name]);
  at::Tensor& buffer = buffer_of(plan);
  plan.pack(candidate, buffer, mine());
  ranks_.gather_in_node(buffer, plan.parts());
  plan.unpack(buffer, z_node);
}

/// The same for all ranks at once: what is left of an exchange when masks are final and duals gone.
void Hsadmm::mean_over_ranks() {
  at::Tensor& buffer = buffer_of(compact_);
  compact_.pack(work_, buffer);
  clock_.end("pack", buffer.nbytes());
  if (feedback_) {
    ranks_.scatter_in_node(buffer, compact_.parts());
    at::Tensor part = compact_.part_of(buffer, mine());
    average_over_nodes(part.div_(ranks_.layout().ranks_here()));
    ranks_.gather_in_node(buffer, compact_.parts());
  } else {
    ranks_.sum_over_ranks(buffer);
    buffer.div_(ranks_.layout().world_size());
  }
  clock_.end("inter", buffer.nbytes());
  compact_.unpack(buffer, work_);
  clock_.end("unpack");
}

/// My part of what is alive <- its mean over nodes, larger nodes counting for more. Rounded messages carry the change
/// since z, which all nodes have.
void Hsadmm::average_over_nodes(at::Tensor& part) {
  const auto& layout = ranks_.layout();
  const double weight = layout.ranks_here() / layout.mean_node_size();
  if (!feedback_) {
    if (!layout.is_even()) part.mul_(weight);
    ranks_.reduce_over_nodes(part);
    part.div_(layout.nodes());
    return;
  }
  at::Tensor z = at::empty_like(part);
  compact_.pack_rows(shards_.rows(in_order_of(work_, z_.params), mine()), z, mine());
  part.sub_(z).mul_(weight);
  Feedback feedback = feedback_->pack(compact_);
  const int64_t vectors = compact_.vector_entries(mine());
  ranks_.compressed_mean_over_nodes(Codec(options_.exchange.payload), part, {part.numel() - vectors, vectors},
                                    &feedback);
  feedback_->unpack(feedback, compact_);
  part.add_(z);
}

bool Hsadmm::takes_outer_step() const {
  if (options_.outer.from > 0) return k_ >= options_.outer.from;
  return frozen_ && options_.after_freeze == AfterFreeze::kNesterov;
}

/// z <- the mean, or the outer step towards it.
void Hsadmm::update_z() {
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
    admm::outer_step(z.value(), work_[z.key()], outer_[z.key()], options_.outer.rate, options_.outer.momentum);
  }
}

/// Theta for the next iteration: z, or the rank's own for the parameters that duals hold.
void Hsadmm::restart(Replica& replica) {
  for (auto& theta : replica.weights.params) {
    const bool own = options_.consensus.start_from == StartFrom::kTheta && duals_ && duals_->hold(theta.key());
    if (!own) theta.value().copy_(z_.params[theta.key()]);
  }
  for (auto& buffer : replica.weights.buffers) {
    const bool averaged = work_.find(buffer.key()) != nullptr;  // counters are equal on all ranks: same number of steps
    averaged ? buffer.value().copy_(z_.buffers[buffer.key()]) : z_.buffers[buffer.key()].copy_(buffer.value());
  }
}

void Hsadmm::set_terms() {
  terms_.anchor = TensorDict();
  terms_.rho1.clear();
  if (duals_) duals_->add_terms(terms_);
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
  if (options_.masks.score) {
    masks_.freeze(shares_of_scores(z_), ranks_);
  } else {
    masks_.freeze(sparsity::unit_scores(masks_.groups(), z_.params));
  }
  set_support();
  sparsity::apply_supports(z_.params, support_);
}

void Hsadmm::cut(const sparsity::Cut& cut, Replica&) {
  TORCH_CHECK(frozen_ || masks_.groups().empty(), "[strategies] a cut before the masks are final");
  at::NoGradGuard no_grad;
  sparsity::apply_cut(z_, cut);
  sparsity::apply_cut(outer_, cut);
  sparsity::apply_cut(work_, cut);
  if (duals_) duals_->cut(cut);
  if (feedback_) feedback_->cut(cut);
  shards_.cut(cut);
  support_ = sparsity::apply_cut(support_, cut);
  dense_ = ShardedCompaction(shards_, work_, sparsity::Supports());
  compact_ = ShardedCompaction(shards_, work_, support_);
  if (options_.masks.mask_theta) set_gradient_masks();
  set_terms();
}

TensorDict Hsadmm::state() const {
  TensorDict state;
  const auto add = [&state](const std::string& room, const TensorDict& tensors) {
    for (const auto& tensor : tensors) state.insert(room + tensor.key(), tensor.value());
  };
  add("z/", z_.params);
  add("z/", z_.buffers);
  add("outer/", outer_);
  add("mask/", masks_.global());
  add("node_mask/", masks_.node());
  state.insert("progress", at::tensor({k_, int64_t{frozen_}, int64_t{duals_.has_value()}, masks_.stable()}, at::kLong));
  if (duals_) duals_->save(state);
  if (feedback_) feedback_->save(state);
  return state;
}

void Hsadmm::load(const TensorDict& state, const sparsity::Cut* cut_before, Replica& replica) {
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
  if (progress[2] == 0) duals_.reset();
  if (frozen_ && options_.masks.mask_theta) set_gradient_masks();
  for (const auto& item : state) {
    if (item.key().starts_with("outer/") && outer_.is_empty()) outer_ = zeros_like(z_.params);
  }
  if (cut_before != nullptr) cut(*cut_before, replica);

  const auto copy = [&state](const std::string& room, TensorDict& tensors) {
    for (auto& tensor : tensors) tensor.value().copy_(state[room + tensor.key()]);
  };
  copy("z/", z_.params);
  copy("z/", z_.buffers);
  copy("outer/", outer_);
  if (duals_) duals_->load(state);
  if (feedback_) feedback_->load(state);
  set_terms();
}

}  // namespace

std::unique_ptr<Strategy> make_hsadmm(Replica& replica, comm::Hierarchy& ranks, HsadmmOptions options) {
  return std::make_unique<Hsadmm>(replica, ranks, std::move(options));
}

}  // namespace prunex::strategies
