#include "prunex/train/strategy_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "prunex/prune/training_groups.h"
#include "prunex/strategies/ddp.h"
#include "prunex/strategies/post_local.h"
#include "prunex/strategies/powersgd.h"
#include "prunex/strategies/top_k.h"

namespace prunex::train {
namespace {

using strategies::HsadmmOptions;
using strategies::Payload;

/// How H-SADMM's code is set for a strategy by this name. The outer step from the first exchange on is worth three
/// points (docs/results.md).
void set_hsadmm(HsadmmOptions& options, const RunPlan&, const TrainOptions&) {
  if (options.after_freeze != strategies::AfterFreeze::kNesterov) return;
  options.outer_from = 1;
  options.outer_momentum = 0.8;
}

void set_local_sgd(HsadmmOptions& options, const RunPlan&, const TrainOptions&) {
  options.penalty.kappa = 0;
  options.after_freeze = strategies::AfterFreeze::kAverage;
}

void set_diloco(HsadmmOptions& options, const RunPlan&, const TrainOptions&) {
  options.penalty.kappa = 0;
  options.after_freeze = strategies::AfterFreeze::kNesterov;
  options.outer_from = 1;
}

/// Nothing is pruned until the exchange after --prune-at of the run, and everything then.
void set_one_shot(HsadmmOptions& options, const RunPlan& plan, const TrainOptions& train) {
  set_local_sgd(options, plan, train);
  options.freeze_after = last_open_exchange(train, plan.length);
  options.keep = {sparsity::KeepRamp::kCubic, options.freeze_after + 1, options.freeze_after + 1};
}

void set_flat(HsadmmOptions& options, const RunPlan& plan, const TrainOptions& train) {
  set_hsadmm(options, plan, train);
  options.flat = true;
}

constexpr double kPruneTrainThreshold = 1e-4;  // arXiv 1901.09290

using Made = std::unique_ptr<strategies::Strategy>;
Made make_local(const TrainOptions& options, const RunPlan& plan, Replica& replica, comm::Hierarchy& ranks);
Made make_ddp(const TrainOptions& options, const RunPlan& plan, Replica& replica, comm::Hierarchy& ranks);
Made make_top_k(const TrainOptions& options, const RunPlan& plan, Replica& replica, comm::Hierarchy& ranks);
Made make_powersgd(const TrainOptions& options, const RunPlan& plan, Replica& replica, comm::Hierarchy& ranks);

struct Kind {
  const char* name;
  bool prunes;  // unless told otherwise
  Made (*make)(const TrainOptions&, const RunPlan&, Replica&, comm::Hierarchy&);
  void (*set)(HsadmmOptions&, const RunPlan&, const TrainOptions&) = nullptr;  // of make_local

  bool averages_gradients() const { return set == nullptr; }
  bool is_ddp() const { return make == make_ddp; }
};

constexpr Kind kKinds[] = {
    {"hsadmm", true, make_local, set_hsadmm},
    {"hsadmm_flat", true, make_local, set_flat},
    {"local_sgd", false, make_local, set_local_sgd},
    {"diloco", false, make_local, set_diloco},
    {"one_shot", true, make_local, set_one_shot},
    {"ddp", false, make_ddp},
    {"prunetrain", false, make_ddp},
    {"top_k", false, make_top_k},
    {"powersgd", false, make_powersgd},
};

const Kind& kind_of(const std::string& name) {
  const auto* kind = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& k) { return k.name == name; });
  if (kind == std::end(kKinds)) {
    throw std::invalid_argument(
        fmt::format("--strategy: got '{}', wanted one of {}", name, fmt::join(strategy_names(), ", ")));
  }
  return *kind;
}

void refuse(bool condition, const std::string& message) {
  if (condition) throw std::invalid_argument(message);
}

strategies::Reporting reporting_of(const TrainOptions& options, const RunPlan& plan) {
  return {options.local_steps, plan.length.steps};
}

HsadmmOptions hsadmm_options(const TrainOptions& options, const RunPlan& plan) {
  HsadmmOptions hsadmm = options.hsadmm;
  hsadmm.groups = plan.groups;
  hsadmm.score_units = plan.score_units;
  hsadmm.select_units = plan.select_units;
  hsadmm.keep = {options.keep_ramp, plan.length.prune_start, plan.length.prune_end};
  hsadmm.freeze_after = plan.length.freeze_after;
  hsadmm.local_steps = options.local_steps;
  hsadmm.total_steps = plan.length.steps;
  hsadmm.learning_rate = [length = plan.length](int64_t step) { return learning_rate_at(length.phase_of(step), step); };
  hsadmm.momentum = options.momentum;
  hsadmm.exchanges_before = options.local_after;
  kind_of(options.strategy).set(hsadmm, plan, options);
  if (options.outer_from) hsadmm.outer_from = *options.outer_from;
  if (options.outer_momentum) hsadmm.outer_momentum = *options.outer_momentum;
  return hsadmm;
}

strategies::DdpOptions ddp_options(const TrainOptions& options) {
  return {.exchange = options.hsadmm.exchange, .payload = options.hsadmm.payload};
}

Made make_ddp(const TrainOptions& options, const RunPlan& plan, Replica& replica, comm::Hierarchy& ranks) {
  auto ddp = ddp_options(options);
  ddp.reporting = reporting_of(options, plan);
  if (ddp.payload > Payload::kFp16) ddp.payload = Payload::kFp32;  // of the first exchanges of post-local SGD
  return strategies::make_ddp(replica, ranks, ddp);
}

Made make_local(const TrainOptions& options, const RunPlan& plan, Replica& replica, comm::Hierarchy& ranks) {
  const auto make = [hsadmm = hsadmm_options(options, plan), &ranks](Replica& from_here) {
    return strategies::make_hsadmm(from_here, ranks, hsadmm);
  };
  if (plan.exchanges_done >= options.local_after) return make(replica);
  return strategies::make_post_local(make_ddp(options, plan, replica, ranks), make, replica, options.local_after);
}

Made make_top_k(const TrainOptions& options, const RunPlan& plan, Replica& replica, comm::Hierarchy& ranks) {
  auto top_k = options.top_k;
  top_k.reporting = reporting_of(options, plan);
  top_k.dgc_options.momentum = options.momentum;
  top_k.dgc_options.warmup_steps = steps_of("--dgc-warmup-epochs", options.dgc_warmup_epochs, plan.length);
  return strategies::make_top_k(replica, ranks, top_k);
}

Made make_powersgd(const TrainOptions& options, const RunPlan& plan, Replica& replica, comm::Hierarchy& ranks) {
  auto powersgd = options.powersgd;
  powersgd.reporting = reporting_of(options, plan);
  powersgd.seed = options.seed;
  return strategies::make_powersgd(replica, ranks, powersgd);
}

}  // namespace

const std::vector<std::string>& strategy_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& kind : kKinds) all.emplace_back(kind.name);
    return all;
  }();
  return names;
}

bool averages_gradients(const std::string& strategy) {
  return kind_of(strategy).averages_gradients();
}

std::string group_words(const TrainOptions& options) {
  if (options.groups != "auto") return options.groups;
  return kind_of(options.strategy).prunes ? "coupled-inner" : "none";
}

int64_t last_open_exchange(const TrainOptions& options, const RunLength& length) {
  if (options.strategy != "one_shot") return length.freeze_after;
  return std::llround(options.prune_at * static_cast<double>(length.exchanges));
}

std::vector<sparsity::Group> groups_to_prune(const channels::Analysis& analysis, const TrainOptions& options) {
  return prune::training_groups(analysis, group_words(options), options.keep,
                                options.round_to == kAutomatic ? prune::kHardwareMultiple : options.round_to);
}

TrainOptions with_defaults(TrainOptions options) {
  if (options.strategy != "prunetrain") return options;
  if (options.sparse.penalty == "none") options.sparse.penalty = "group_lasso";
  if (!options.pruning.any()) options.pruning.below = kPruneTrainThreshold;
  return options;
}

void validate_strategy(const TrainOptions& options) {
  const auto& name = options.strategy;
  const Kind& kind = kind_of(name);
  const bool rounds = options.hsadmm.payload != Payload::kFp32;
  const bool gradients = kind.averages_gradients();
  refuse(gradients && group_words(options) != "none",
         fmt::format("--groups: got {}, {} does not prune: wanted none", options.groups, name));
  refuse(gradients && options.local_after > 0, fmt::format("--local-after: {} never stops averaging gradients", name));
  refuse(options.local_after < 0, fmt::format("--local-after: got {}, wanted 0 or more", options.local_after));
  refuse(rounds && gradients && !kind.is_ddp(),
         fmt::format("--payload: got {}, {} has fp32 alone", strategies::name_of(options.hsadmm.payload), name));
  refuse(rounds && name == "hsadmm_flat",
         fmt::format("--payload: got {}, hsadmm_flat has fp32 alone: it knows no nodes to round between",
                     strategies::name_of(options.hsadmm.payload)));
  refuse(rounds && options.sites > 1,
         fmt::format("--payload: got {}, between sites fp32 alone", strategies::name_of(options.hsadmm.payload)));
  refuse(options.hsadmm.exchange == strategies::ExchangeForm::kFlat && !kind.is_ddp(),
         fmt::format("--exchange: got flat, {} has sharded and leader", name));
  refuse(!(options.prune_at > 0 && options.prune_at < 1),
         fmt::format("--prune-at: got {}, wanted a share in (0, 1)", options.prune_at));
  refuse(!(options.dgc_warmup_epochs >= 0),
         fmt::format("--dgc-warmup-epochs: got {}, wanted 0 or more", options.dgc_warmup_epochs));
  if (kind.is_ddp()) strategies::check(ddp_options(options));
  strategies::check(options.top_k);
  strategies::check(options.powersgd);
}

std::unique_ptr<strategies::Strategy> make_strategy(const TrainOptions& options, const RunPlan& plan, Replica& replica,
                                                    comm::Hierarchy& ranks) {
  return kind_of(options.strategy).make(options, plan, replica, ranks);
}

double local_momentum(const TrainOptions& options) {
  return options.strategy == "top_k" && options.top_k.dgc ? 0 : options.momentum;
}

}  // namespace prunex::train
