#include "prunex/train/strategy_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "prunex/prune/training_groups.h"
#include "prunex/strategies/gradients/gradients.h"
#include "prunex/strategies/scaffold.h"
#include "prunex/strategies/strategy.h"
#include "prunex/train/optimizer_choice.h"

namespace prunex::train {
namespace {

using strategies::HsadmmOptions;
using strategies::Payload;

/// How H-SADMM's code is set for a strategy by this name. The outer step from the first exchange on is worth three
/// points (docs/results.md).
void set_hsadmm(HsadmmOptions& options, const RunPlan&, const TrainOptions&) {
  options.outer.momentum = 0.8;
  if (options.after_freeze == strategies::AfterFreeze::kNesterov) options.outer.from = 1;
}

void set_local_sgd(HsadmmOptions& options, const RunPlan&, const TrainOptions&) {
  options.consensus.penalty.kappa = 0;
  options.after_freeze = strategies::AfterFreeze::kAverage;
}

void set_diloco(HsadmmOptions& options, const RunPlan&, const TrainOptions&) {
  options.consensus.penalty.kappa = 0;
  options.after_freeze = strategies::AfterFreeze::kNesterov;
  options.outer.from = 1;
}

/// Nothing is pruned until the exchange after `prune_at` of the run, and everything then.
void set_one_shot(HsadmmOptions& options, const RunPlan& plan, const TrainOptions& train) {
  set_local_sgd(options, plan, train);
  if (plan.masked.groups.empty()) return;
  options.masks.freeze_after = last_open_exchange(train, plan.length);
  options.masks.keep = {sparsity::KeepRamp::kCubic, options.masks.freeze_after + 1, options.masks.freeze_after + 1};
}

void set_flat(HsadmmOptions& options, const RunPlan& plan, const TrainOptions& train) {
  set_hsadmm(options, plan, train);
  options.consensus.flat = true;
}

constexpr double kPruneTrainThreshold = 1e-4;  // arXiv 1901.09290

using Made = std::unique_ptr<strategies::Strategy>;
Made make_local(const TrainOptions& options, const RunPlan& plan, Replica& replica, comm::Hierarchy& ranks);
Made make_scaffold(const TrainOptions& options, const RunPlan& plan, Replica& replica, comm::Hierarchy& ranks);
Made make_ddp(const TrainOptions& options, const RunPlan& plan, Replica& replica, comm::Hierarchy& ranks);
Made make_top_k(const TrainOptions& options, const RunPlan& plan, Replica& replica, comm::Hierarchy& ranks);
Made make_powersgd(const TrainOptions& options, const RunPlan& plan, Replica& replica, comm::Hierarchy& ranks);

struct Kind {
  StrategyFacts facts;
  Made (*make)(const TrainOptions&, const RunPlan&, Replica&, comm::Hierarchy&);
  void (*set)(HsadmmOptions&, const RunPlan&, const TrainOptions&) = nullptr;  // of make_local

  bool is_ddp() const { return make == make_ddp; }
};

const Kind kKinds[] = {
    {{.name = "hsadmm",
      .prunes = true,
      .duals = true,
      .outer_step = true,
      .elastic = true,
      .narrowest = Payload::kInt1},
     make_local,
     set_hsadmm},
    {{.name = "hsadmm_flat", .prunes = true, .duals = true, .outer_step = true, .one_node = true},
     make_local,
     set_flat},
    {{.name = "local_sgd", .elastic = true, .narrowest = Payload::kInt1}, make_local, set_local_sgd},
    {{.name = "diloco", .outer_step = true, .elastic = true, .narrowest = Payload::kInt1}, make_local, set_diloco},
    {{.name = "one_shot", .prunes = true, .elastic = true, .narrowest = Payload::kInt1}, make_local, set_one_shot},
    {{.name = "scaffold", .controls = true, .elastic = true, .narrowest = Payload::kFp16}, make_scaffold},
    {{.name = "ddp", .gradients = true, .overlaps = true, .elastic = true, .narrowest = Payload::kFp16}, make_ddp},
    {{.name = "prunetrain", .gradients = true, .overlaps = true, .elastic = true, .narrowest = Payload::kFp16},
     make_ddp},
    {{.name = "top_k", .gradients = true, .sums = false, .elastic = true}, make_top_k},
    {{.name = "powersgd", .gradients = true, .sums = false, .elastic = true}, make_powersgd},
};

const Kind& kind_of(const std::string& name) {
  const auto* kind =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& k) { return k.facts.name == name; });
  if (kind == std::end(kKinds)) {
    throw std::invalid_argument(
        fmt::format("`strategy`: got '{}', wanted one of {}", name, fmt::join(strategy_names(), ", ")));
  }
  return *kind;
}

strategies::Reporting reporting_of(const TrainOptions& options, const RunPlan& plan) {
  return {options.local_steps, plan.length.steps};
}

strategies::LocalSgd local_sgd_of(const TrainOptions& options, const RunPlan& plan) {
  return {.steps = options.local_steps,
          .total_steps = plan.length.steps,
          .learning_rate = plan.learning_rate,
          .momentum = amplifying_momentum(options),
          .exchanges_before = options.local_after};
}

HsadmmOptions hsadmm_options(const TrainOptions& options, const RunPlan& plan) {
  HsadmmOptions hsadmm{.exchange = options.exchange,
                       .masks = options.masks,
                       .consensus = options.consensus,
                       .outer = options.outer,
                       .after_freeze = options.after_freeze,
                       .overlap = options.overlap};
  hsadmm.masks.groups = plan.masked.groups;
  hsadmm.masks.score = plan.masked.score;
  hsadmm.masks.select = plan.masked.select;
  hsadmm.masks.keep = {options.keep_ramp, plan.length.prune_start, plan.length.prune_end};
  hsadmm.masks.freeze_after = plan.length.freeze_after;
  hsadmm.local = local_sgd_of(options, plan);
  if (plan.masked.groups.empty()) hsadmm.masks.freeze_after = strategies::kNever;
  kind_of(options.strategy).set(hsadmm, plan, options);
  if (options.outer_from) hsadmm.outer.from = *options.outer_from;
  if (options.outer_momentum) hsadmm.outer.momentum = *options.outer_momentum;
  return hsadmm;
}

Made make_ddp_from(strategies::Begin begin, const TrainOptions& options, const RunPlan& plan, Replica& replica,
                   comm::Hierarchy& ranks) {
  strategies::DdpOptions ddp{.reporting = reporting_of(options, plan), .exchange = options.exchange, .begin = begin};
  if (ddp.exchange.payload > Payload::kFp16)
    ddp.exchange.payload = Payload::kFp32;  // of the first exchanges of post-local SGD
  return strategies::make_ddp(replica, ranks, ddp);
}

Made make_ddp(const TrainOptions& options, const RunPlan& plan, Replica& replica, comm::Hierarchy& ranks) {
  return make_ddp_from(strategies::Begin::kBroadcast, options, plan, replica, ranks);
}

/// What `make_between` makes, for nodes that are workers if `in_node` says so.
strategies::StrategyMaker of_workers(strategies::StrategyMaker make_between, const TrainOptions& options,
                                     const RunPlan& plan, comm::Hierarchy& ranks) {
  if (options.in_node == InNode::kWeights) return make_between;
  return [make_between, reporting = reporting_of(options, plan), &ranks](Replica& replica) {
    return strategies::make_averaging_in_node(make_between(replica), replica, ranks, reporting);
  };
}

/// What `make_between` makes, after `local_after` exchanges of gradients.
Made after_gradients(const strategies::StrategyMaker& make_between, const TrainOptions& options, const RunPlan& plan,
                     Replica& replica, comm::Hierarchy& ranks) {
  const auto make = of_workers(make_between, options, plan, ranks);
  if (plan.exchanges_done >= options.local_after) return make(replica);
  const auto again = [options, plan, &ranks](Replica& as_it_was) {
    return make_ddp_from(strategies::Begin::kEqual, options, plan, as_it_was, ranks);
  };
  return strategies::make_post_local(make_ddp(options, plan, replica, ranks), again, make, replica,
                                     options.local_after);
}

Made make_local(const TrainOptions& options, const RunPlan& plan, Replica& replica, comm::Hierarchy& ranks) {
  const auto make = [hsadmm = hsadmm_options(options, plan), &ranks](Replica& from_here) {
    return strategies::make_hsadmm(from_here, ranks, hsadmm);
  };
  return after_gradients(make, options, plan, replica, ranks);
}

Made make_scaffold(const TrainOptions& options, const RunPlan& plan, Replica& replica, comm::Hierarchy& ranks) {
  const strategies::ScaffoldOptions scaffold{local_sgd_of(options, plan), options.exchange};
  const auto make = [scaffold, &ranks](Replica& from_here) {
    return strategies::make_scaffold(from_here, ranks, scaffold);
  };
  return after_gradients(make, options, plan, replica, ranks);
}

Made make_top_k(const TrainOptions& options, const RunPlan& plan, Replica& replica, comm::Hierarchy& ranks) {
  auto top_k = options.top_k;
  top_k.reporting = reporting_of(options, plan);
  top_k.dgc_options.momentum = amplifying_momentum(options);
  top_k.dgc_options.warmup_steps = steps_of("`dgc_warmup_epochs`", options.dgc_warmup_epochs, plan.length);
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
    for (const auto& kind : kKinds) all.push_back(kind.facts.name);
    return all;
  }();
  return names;
}

const StrategyFacts& facts_of(const std::string& strategy) {
  return kind_of(strategy).facts;
}

std::string no_nodes(const TrainOptions& options) {
  return facts_of(options.strategy).one_node ? options.strategy + " takes all ranks for one node" : "";
}

bool may_have_nodes(const TrainOptions& options) {
  return options.nodes > 1 || options.elastic || !options.join.empty();
}

std::string no_other_nodes(const TrainOptions& options) {
  const std::string of_strategy = no_nodes(options);
  return of_strategy.empty() && !may_have_nodes(options) ? "there is one node" : of_strategy;
}

std::string no_ranks_in_node(const TrainOptions& options) {
  const auto& sizes = options.ranks_per_node;
  const bool some = std::any_of(sizes.begin(), sizes.end(), [](int p) { return p > 1; });
  return some ? "" : "a node has one rank by `ranks_per_node`";
}

bool pulls(const TrainOptions& options) {
  return facts_of(options.strategy).duals && options.consensus.penalty.kappa > 0;
}

bool has_outer_step(const TrainOptions& options) {
  const StrategyFacts& facts = facts_of(options.strategy);
  if (!facts.weights_alone()) return false;
  const bool settles = options.freeze_after != strategies::kNever || options.masks.freeze_when_stable > 0;
  const bool freezes = settles && !(group_words(options) == "none" && pulls(options));
  const bool waits = facts.duals || group_words(options) != "none";
  if (waits && options.outer_from == 0 && !freezes) return false;
  const bool after_freeze = !facts.duals || options.after_freeze == strategies::AfterFreeze::kNesterov;
  return options.outer_from.value_or(0) > 0 || (facts.outer_step && after_freeze);
}

std::string group_words(const TrainOptions& options) {
  if (options.groups != "auto") return options.groups;
  return facts_of(options.strategy).prunes ? "coupled-inner" : "none";
}

int64_t last_open_exchange(const TrainOptions& options, const RunLength& length) {
  if (options.strategy != "one_shot") return length.freeze_after;
  return std::llround(options.prune_at * static_cast<double>(length.exchanges));
}

int64_t multiple_of_units(const TrainOptions& options) {
  return options.round_to == kAutomatic ? prune::kHardwareMultiple : options.round_to;
}

std::vector<sparsity::Group> groups_to_prune(const channels::Analysis& analysis, const TrainOptions& options) {
  return prune::training_groups(analysis, group_words(options), options.keep, multiple_of_units(options));
}

TrainOptions with_defaults(TrainOptions options) {
  if (options.strategy != "prunetrain") return options;
  if (options.sparse.penalty == "none") options.sparse.penalty = "group_lasso";
  if (!options.pruning.any()) options.pruning.below = kPruneTrainThreshold;
  return options;
}

void validate_strategy(const TrainOptions& options) {
  const Kind& kind = kind_of(options.strategy);
  const StrategyFacts& facts = kind.facts;
  const auto& name = facts.name;
  const auto payload = options.exchange.payload;
  text::refuse_if(!facts.weights_alone() && group_words(options) != "none",
                  fmt::format("`groups`: got {}, {} has no masks: wanted none", options.groups, name));
  text::refuse_if(facts.gradients && options.local_after > 0,
                  fmt::format("`local_after`: {} never stops averaging gradients", name));
  text::refuse_if(payload > facts.narrowest,
                  fmt::format("`payload`: got {}, {} has {}{}", strategies::name_of(payload), name,
                              facts.narrowest == Payload::kFp32 ? "fp32 alone" : "fp32, bf16 and fp16",
                              facts.one_node ? ": it knows no nodes to round between" : ""));
  text::refuse_if(options.overlap >= options.local_steps,
                  fmt::format("`overlap`: got {}, wanted fewer than the {} of `local_steps`", options.overlap,
                              options.local_steps));
  const bool workers = options.in_node == InNode::kGradients;
  text::refuse_if(workers && options.overlap > 0 && options.nodes == 1,
                  "`overlap`: got one beside `in_node` gradients of a single node, whose ranks talk in every step; "
                  "wanted 0");
  text::refuse_if(workers && options.elastic && facts.controls,
                  fmt::format("`in_node`: got gradients beside `elastic`, which makes steps again; {} keeps the sum of "
                              "theirs: wanted weights",
                              name));
  text::refuse_if(payload != Payload::kFp32 && options.sites > 1,
                  fmt::format("`payload`: got {}, between sites fp32 alone", strategies::name_of(payload)));
  text::refuse_if(options.exchange.form == strategies::ExchangeForm::kFlat && facts.sums && !kind.is_ddp(),
                  fmt::format("`exchange`: got flat, {} has sharded and leader", name));
  const bool deaf =
      options.consensus.start_from == strategies::StartFrom::kTheta && options.consensus.penalty.kappa == 0;
  text::refuse_if(facts.duals && deaf,
                  "`start_from`: got theta, which needs `kappa` above 0: ranks would not hear of each other");
  const bool whole = group_words(options) == "none";
  const bool pulls_nothing = pulls(options) && whole && options.consensus.aux == strategies::AuxTensors::kAverage;
  text::refuse_if(
      pulls_nothing,
      fmt::format("`groups`: got none, which leaves {} no tensor to pull: wanted `aux` admm, which pulls all, or "
                  "`kappa` 0, which goes without",
                  name));
  const bool dgc = name == "top_k" && options.top_k.dgc;
  text::refuse_if(
      dgc && options.optimizer != Optimizer::kSgd,
      "`optimizer`: got another one than sgd beside `dgc`, which is SGD with a momentum of its own; wanted sgd");
  text::refuse_if(dgc && options.clip_norm > 0,
                  "`clip_grad_norm`: got one beside `dgc`, which clips what it gathers; wanted `dgc_clip`");
  text::refuse_if(kind.facts.controls && options.clip_norm > 0,
                  fmt::format("`clip_grad_norm`: got one beside {}, whose control variates are of whole gradients: one "
                              "that is clipped would be corrected by what it lost",
                              name));
  text::refuse_if(options.ema > 0 && whole && pulls(options),
                  "`ema`: got one without `groups`, where the duals never end; the mean begins when they have");
  text::refuse_if(options.ema > 0 && !whole && options.freeze_after == strategies::kNever,
                  "`ema`: got one with `freeze_after` never; the mean begins when masks are final, which may not be");
  if (kind.is_ddp()) strategies::check({.exchange = options.exchange});
  strategies::check(options.top_k);
}

std::unique_ptr<strategies::Strategy> make_strategy(const TrainOptions& options, const RunPlan& plan, Replica& replica,
                                                    comm::Hierarchy& ranks) {
  return kind_of(options.strategy).make(options, plan, replica, ranks);
}

}  // namespace prunex::train
