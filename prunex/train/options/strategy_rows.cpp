// The options of strategies and of what they prune.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "prunex/prune/importance.h"
#include "prunex/prune/plan.h"
#include "prunex/train/options.h"
#include "prunex/train/pruning/mask_choice.h"
#include "prunex/train/strategy_choice.h"

namespace prunex::train {
namespace {

using text::between;
using text::Condition;
using text::count_or;
using text::number;

// When an option has an effect. Each function says why it has none, or nothing.

std::string no_masks(const TrainOptions& o) {
  if (group_words(o) != "none") return "";
  if (!facts_of(o.strategy).weights_alone()) return o.strategy + " has no masks";
  return o.groups == "none" ? "`groups` none masks nothing" : o.strategy + " masks nothing without `groups`";
}

/// Of `keep`: kinds are joined by +, and each may say its share behind a colon.
std::string no_open_share(const TrainOptions& o) {
  if (const std::string why = no_masks(o); !why.empty()) return why;
  const std::string words = group_words(o);
  const auto count = [&](char mark) { return std::count(words.begin(), words.end(), mark); };
  return count(':') <= count('+') ? "" : fmt::format("`groups` {} says all shares", o.groups);
}

std::string no_coupled_groups(const TrainOptions& o) {
  if (const std::string why = no_masks(o); !why.empty()) return why;
  const bool coupled = group_words(o).find("coupled") != std::string::npos;
  return coupled ? "" : fmt::format("`groups` {} are not rounded", o.groups);
}

std::string no_target(const TrainOptions& o) {
  return o.pruning.target.empty() ? "nothing is cut without `prune_to`" : "";
}

std::string no_duals(const TrainOptions& o) {
  if (!facts_of(o.strategy).duals) return o.strategy + " has no duals";
  return o.consensus.penalty.kappa == 0 ? "there are no duals with `kappa` 0" : "";
}

/// None whose residuals could end a run that has nothing left to prune.
std::string no_lasting_duals(const TrainOptions& o) {
  if (!no_masks(o).empty() || o.after_freeze == strategies::AfterFreeze::kAdmm) return "";
  if (o.ema > 0) return "the duals end when masks are final, and `ema` begins";
  const bool freezes_at_once = o.freeze_after == kAutomatic && o.keep_ramp != sparsity::KeepRamp::kHard;
  return freezes_at_once ? "the duals end when masks have their final share" : "";
}

std::string no_overlap(const TrainOptions& o) {
  if (!facts_of(o.strategy).weights_alone()) return o.strategy + " waits for its exchanges";
  if (no_masks(o).empty() && o.freeze_after == strategies::kNever)
    return "with `freeze_after` never masks may not become final, which it waits for";
  if (!facts_of(o.strategy).duals || o.consensus.penalty.kappa == 0) return "";
  if (o.after_freeze == strategies::AfterFreeze::kAdmm) return "`after_freeze` admm waits for its exchanges";
  return group_words(o) == "none" ? "without `groups` the duals never end" : "";
}

/// Of DGC's density.
std::string no_fall(double density) {
  const bool falls = density < strategies::kFirstDensity;
  return falls ? "" : fmt::format("the density falls from {}, and `density` is {}", strategies::kFirstDensity, density);
}

/// Of gradients that are averaged in the node.
std::string no_worker_of_ranks(const TrainOptions& o) {
  if (facts_of(o.strategy).gradients) return o.strategy + " averages gradients over all ranks";
  if (const std::string why = no_nodes(o); !why.empty()) return why;
  return no_ranks_in_node(o);
}

std::string needs_data(const std::string& importance) {
  if (importance == kNormImportance || !prune::needs_evidence(prune::importance_named(importance).criterion)) {
    return importance + " looks at no images";
  }
  return "";
}

/// Of two reasons why an option has no effect: both, or none where one of them is none.
std::string either(const std::string& one, const std::string& other) {
  return one.empty() || other.empty() ? "" : one + ", and " + other;
}

/// The conditions of one set of options.
struct Conditions {
  const TrainOptions& o;

  Condition strategy(const char* name) const {
    return {fmt::format("`strategy` {}", name), [this_o = &o, name] {
              return this_o->strategy == name ? "" : fmt::format("{} is not {}", this_o->strategy, name);
            }};
  }
  Condition of(const char* with, std::string (*why_not)(const TrainOptions&)) const {
    return {with, [this_o = &o, why_not] { return why_not(*this_o); }};
  }
  Condition masks() const { return of("masks", no_masks); }
  Condition target() const { return of("`prune_to`", no_target); }
  Condition duals() const { return of("duals", no_duals); }
  Condition other_nodes() const { return of("several nodes", no_other_nodes); }
  Condition masks_or_target() const {
    return of("masks or `prune_to`", [](const auto& all) { return either(no_masks(all), no_target(all)); });
  }
  Condition cuts() const {
    return of("masks or cuts", [](const auto& all) { return with_defaults(all).pruning.any() ? "" : no_masks(all); });
  }
  Condition cuts_or_penalties() const {
    return of("masks, cuts or `sparse`", [](const auto& all) {
      const TrainOptions own = with_defaults(all);
      return own.pruning.any() || own.sparse.penalty != "none" ? "" : no_masks(all);
    });
  }
  /// One-shot pruning has a schedule of its own.
  Condition gradual() const {
    return of("masks that come step by step", [](const TrainOptions& all) {
      return all.strategy == "one_shot" ? "one_shot prunes once, after `prune_at`" : no_masks(all);
    });
  }
  Condition outer_step() const {
    return of("an outer step", [](const TrainOptions& all) {
      if (!facts_of(all.strategy).weights_alone()) return all.strategy + " has no outer step";
      if (has_outer_step(all)) return std::string();
      if (all.outer_from == 0) return std::string("`outer_from` 0 waits for a freeze, which does not come");
      return all.strategy + " has no outer step without `outer_from`";
    });
  }
};

/// The empty one stands for the importance's own.
std::vector<std::string> normalizer_words() {
  std::vector<std::string> words = prune::normalizer_names();
  words.insert(words.begin(), "");
  return words;
}

/// A share, or what is left of the network: budget.
text::OptionValue keep_value(TrainOptions& o) {
  const auto read = [&o](const std::string& word) {
    const auto share = text::number_in<double>(word);
    const bool is_budget = word.find('=') != std::string::npos;
    if (!share && !is_budget) text::refuse_value(word, "a share in (0, 1], macs=M, parameters=P or speed-up=X");
    o.budget = is_budget ? word : "";
    if (share) o.keep = *share;
  };
  return {.type = "SHARE|NAME=NUMBER",
          .read = read,
          .write = [&o] { return o.budget.empty() ? fmt::format("{}", o.keep) : o.budget; },
          .check = [&o] { text::check_range(text::share(), o.keep); }};
}

text::OptionValue layer_ratios(std::vector<prune::LayerRatio>& field) {
  const auto read = [&field](const std::string& list) {
    field.clear();
    for (const auto& word : text::split(list)) {
      const auto ratio = text::assignment_in(word);
      if (!ratio) text::refuse_value(word, "NAME=RATIO");
      field.push_back({ratio->first, ratio->second});
    }
  };
  const auto write = [&field] {
    std::vector<std::string> words;
    for (const auto& [pattern, ratio] : field) words.push_back(fmt::format("{}={}", pattern, ratio));
    return fmt::format("{}", fmt::join(words, ","));
  };
  return {.type = "TEXT", .read = read, .write = write};
}

void describe_masks(text::OptionList& list, TrainOptions& o, const Conditions& with) {
  const text::Range exchanges = between(1, kMostExchanges);
  list.topic("Pruning");
  list.add("groups", text::text_value(o.groups),
           "coupled-inner, coupled, filter, channel, shape, none; joined by +, each with :KEEP; auto: coupled-inner "
           "where the strategy prunes by itself, else none")
      .basic();
  list.add("heads", text::flag(o.heads), "attention loses whole heads instead of equal positions of all heads",
           {with.cuts()});
  list.add("keep", keep_value(o),
           "share of units kept per group, in (0, 1]; or of the network: macs=M, parameters=P (a share or a count) or "
           "speed-up=X, met by masks as `scope` and limits say",
           {with.of("masks", no_open_share)})
      .basic();
  list.add(
      "round-to", count_or(o.round_to, {{"auto", kAutomatic}}, between(1, prune::kMostMultiple)),
      "layers of coupled groups keep a multiple of N channels; auto: of masks by group size, of `prune_to` any number",
      {with.of("masks of coupled groups, or `prune_to`",
               [](const auto& all) { return either(no_coupled_groups(all), no_target(all)); })});
  list.add("no-shrink", text::no_flag(o.shrink), "train on with masks instead of cutting the model", {with.masks()});
  list.add(
      "mask-rule",
      text::choice(o.masks.rule, {{"joint", strategies::MaskRule::kJoint}, {"union", strategies::MaskRule::kUnion}}),
      "one mask for all nodes, or each node's own", {with.masks(), with.other_nodes()});
  list.add("mask-importance", text::one_of(o.mask_importance, mask_importance_names()),
           "what ranks units for masks: norm (of all their weights), or as `importance`", {with.masks()});
  list.add("keep-schedule",
           text::choice(o.keep_ramp, {{"cubic", sparsity::KeepRamp::kCubic}, {"hard", sparsity::KeepRamp::kHard}}),
           "gradual, or the final share at once", {with.gradual()});
  list.add("prune-start", count_or(o.prune_start, {{"auto", kAutomatic}}, exchanges),
           "first exchange that prunes; auto: the second after `local_after`",
           {with.gradual(), {"`keep_schedule` cubic", [&o] {
                               const bool hard = o.keep_ramp == sparsity::KeepRamp::kHard;
                               return hard ? "with `keep_schedule` hard the first exchange prunes" : "";
                             }}});
  list.add("prune-end", count_or(o.prune_end, {{"auto", kAutomatic}}, exchanges),
           "first exchange at the final share; auto: half of the run after `local_after`",
           {with.gradual(), {"", [&o] {
                               const bool ends_nothing = o.keep_ramp == sparsity::KeepRamp::kHard &&
                                                         o.freeze_after != kAutomatic &&
                                                         o.masks.freeze_when_stable == 0;
                               return ends_nothing ? "`keep_schedule` hard is at the final share at once, and "
                                                     "`freeze_after` says when masks are final"
                                                   : "";
                             }}});
  list.add("freeze-after",
           count_or(o.freeze_after, {{"auto", kAutomatic}, {"never", strategies::kNever}}, between(0, kMostExchanges)),
           "the exchange after this one chooses masks for the last time; auto: `prune_end`; never", {with.gradual()});
  list.add("freeze-when-stable", number(o.masks.freeze_when_stable, between(0, kMostExchanges)),
           "freeze after so many exchanges without a change; 0 = off", {with.gradual()});
}

void describe_cuts(text::OptionList& list, TrainOptions& o, const Conditions& with) {
  auto& pruning = o.pruning;
  auto& limits = pruning.plan.limits;
  list.topic("Pruning by importance");
  list.add("prune-to", text::text_value(pruning.target),
           "ratio=R, macs=M, parameters=P or speed-up=X, as prunex prune has them")
      .instead_of("prune-below");
  list.add("prune-below", number(pruning.below, text::at_least(0)),
           "instead: units whose weights are all smaller, all through training",
           {{"a threshold where `strategy` is prunetrain",
             [&o] {
               const auto& own = o.pruning;
               const bool lacks = o.strategy == "prunetrain" && own.below == 0 && own.target.empty();
               return lacks ? "prunetrain cuts all through training: with 0 it has 0.0001" : "";
             }}})
      .instead_of("prune-to");
  list.add("prune-steps", number(pruning.steps, between(1, kMostExchanges)), "cuts to the target", {with.target()});
  list.add("prune-every", number(pruning.every, between(0, kMostExchanges)),
           "exchanges between cuts; 0: all steps after one exchange",
           {{"several cuts", [&o] {
               const auto& cuts = with_defaults(o).pruning;
               if (cuts.below > 0) return std::string();
               return cuts.steps > 1 ? no_target(o) : "there is one cut at most: `prune_steps` is 1";
             }}});
  list.add("importance", text::one_of(pruning.importance, prune::importance_names()), "what ranks the units",
           {with.target()});
  list.add("normalizer", text::one_of(pruning.normalizer, normalizer_words()),
           "what makes groups comparable (the importance's own)",
           {with.target(), {"`scope` isomorphic, global; an importance but random", [&pruning] {
                              if (pruning.importance == "random") return "random scores are all on one scale";
                              const bool local = pruning.plan.scope == prune::Scope::kLocal;
                              return local ? "with `scope` local groups are not compared" : "";
                            }}});
  list.add("importance-samples", number(pruning.importance_samples, text::at_least(1)),
           "training images that gradients and activations are of; for masks, too",
           {{"an importance that looks at images", [&o] {
               const std::string masks = no_masks(o), target = no_target(o);
               return either(masks.empty() ? needs_data(o.mask_importance) : masks,
                             target.empty() ? needs_data(o.pruning.importance) : target);
             }}});
  list.add("scope", text::choice(pruning.plan.scope, prune::scopes()),
           "units compared with one another: of a group, of groups of one structure, or all", {with.masks_or_target()});
  list.add("max-ratio", number(limits.max_ratio, {.least = 0, .most = 1, .wanted = "a share in [0, 1]"}),
           "largest share of a group's units that a cut removes", {with.masks_or_target()});
  list.add("layer-ratio", layer_ratios(limits.ratios),
           "another share that goes, for layers of this name: NAME=R,NAME=R; NAME may hold *, ? and [ab]",
           {with.masks_or_target()});
  list.add("ignore", text::text_list(limits.ignore),
           "layers whose outputs stay: names, which may hold *, ? and [ab], separated by commas",
           {with.cuts_or_penalties()});
}

void describe_strategy(text::OptionList& list, TrainOptions& o, const Conditions& with) {
  auto& dgc = o.top_k.dgc_options;
  const Condition deep{"`dgc`", [&o] { return o.top_k.dgc ? "" : std::string("it is a part of `dgc`"); }};
  list.topic("Strategy");
  list.add("strategy", text::one_of(o.strategy, strategy_names()),
           "what ranks say to each other, and when: docs/strategies.md")
      .basic();
  list.add("preset", text::one_of(o.preset, preset_names()),
           "slow-link: DiLoCo in 2 bits every 40 steps, as measured in docs/results.md; paper: PruneX's published form "
           "and hyper-parameters; other options win");
  list.add("payload", text::choice(o.exchange.payload, strategies::payloads()),
           "numbers between nodes; weights are rounded with error feedback", {with.other_nodes()})
      .basic();
  list.add("overlap", number(o.overlap, text::at_least(0)),
           "local steps that run while an exchange travels, once masks are final; 0 = wait for it",
           {{"strategies that exchange weights alone", [&o] { return no_overlap(o); }}});
  list.add("in-node", text::choice(o.in_node, {{"weights", InNode::kWeights}, {"gradients", InNode::kGradients}}),
           "what the ranks of a node average: weights in exchanges, or gradients in every step, as one worker",
           {with.of("several ranks in a node; strategies that exchange weights", no_worker_of_ranks)});
  list.add("local-after", number(o.local_after, between(0, kMostExchanges)),
           "post-local SGD: gradients in every step for so many exchanges");
  list.add("prune-at", number(o.prune_at, text::inner_share()), "one_shot: prune after this share of the run",
           {{"`strategy` one_shot, or `prune_to` without `finetune_epochs`", [&o] {
               if (o.strategy == "one_shot" && no_masks(o).empty()) return std::string();
               const std::string why = no_target(o);
               return why.empty() && o.finetune.epochs > 0 ? "cuts come where fine-tuning begins" : why;
             }}});
  list.add("density", number(o.top_k.density, text::share()), "top_k: share of the gradient's entries sent",
           {with.strategy("top_k")});
  list.add("no-error-feedback", text::no_flag(o.top_k.error_feedback),
           "top_k: forget what is not sent, as weak baselines do", {with.strategy("top_k")});
  list.add("dgc", text::flag(o.top_k.dgc), "top_k: deep gradient compression", {with.strategy("top_k")});
  list.add("dgc-warmup-epochs", number(o.dgc_warmup_epochs, text::at_least(0)), "density falls from 0.25",
           {with.strategy("top_k"), deep, {"", [&o] { return no_fall(o.top_k.density); }}});
  list.add("dgc-clip", number(dgc.clip, text::at_least(0)), "largest norm of the gradient; 0 = off",
           {with.strategy("top_k"), deep});
  list.add("powersgd-rank", number(o.powersgd.rank, text::at_least(1)), "columns of the factors",
           {with.strategy("powersgd")});
  list.add("powersgd-start", number(o.powersgd.start_after, text::at_least(0)), "steps with whole gradients before",
           {with.strategy("powersgd")});
}

void describe_outer_step(text::OptionList& list, TrainOptions& o, const Conditions& with) {
  list.add("outer-lr", number(o.outer.rate, text::above_zero()), "of the Nesterov step", {with.outer_step()});
  list.add("outer-momentum", number(o.outer_momentum, text::below_one(), "auto"),
           "of the Nesterov step; auto: 0.8 for H-SADMM, 0.9 elsewhere", {with.outer_step()});
  list.add(
      "outer-from", number(o.outer_from, between(0, kMostExchanges), "auto"),
      "Nesterov step from this exchange on; 0 = from the freeze; auto: 1 for diloco, and for hsadmm and hsadmm_flat "
      "with `after_freeze` nesterov, else 0",
      {{"strategies that exchange weights alone",
        [&o] { return facts_of(o.strategy).weights_alone() ? "" : o.strategy + " has no outer step"; }}});
}

void describe_consensus(text::OptionList& list, TrainOptions& o, const Conditions& with) {
  using admm::PenaltyRule;
  using strategies::AfterFreeze;
  auto& consensus = o.consensus;
  auto& penalty = consensus.penalty;
  const Condition first_values{
      "`penalty` other than kappa",
      [&penalty] { return penalty.rule == PenaltyRule::kKappa ? std::string("it follows from `kappa`") : ""; }};
  list.topic("Consensus");
  list.add("as-printed", text::flag(consensus.as_printed), "Eq. 9 as the paper prints it, to see what it does",
           {with.duals()});
  list.add("penalty",
           text::choice(penalty.rule, {{"kappa", PenaltyRule::kKappa},
                                       {"residual", PenaltyRule::kResidual},
                                       {"geometric", PenaltyRule::kGeometric},
                                       {"fixed", PenaltyRule::kFixed}}),
           "how rho1 and rho2 change", {with.duals()});
  list.add("kappa", number(penalty.kappa, text::at_least(0)), "pull towards the node's model per exchange; 0 = no ADMM",
           {{"duals and `penalty` kappa", [&o] {
               if (!facts_of(o.strategy).duals) return no_duals(o);
               const bool reads = o.consensus.penalty.rule == PenaltyRule::kKappa || o.consensus.penalty.kappa == 0;
               return reads ? "" : std::string("other rules of `penalty` do not read it");
             }}});
  list.add("rho1", number(penalty.rho1, text::above_zero()), "first value where `penalty` is not kappa",
           {with.duals(), first_values});
  list.add("rho2", number(penalty.rho2, text::at_least(0)), "first value where `penalty` is not kappa",
           {with.duals(), with.other_nodes(), first_values});
  list.add("rho1-max", number(penalty.rho1_max, text::at_least(0)), "cap; 0 = by learning rate with kappa, else none",
           {with.duals()});
  list.add("rho2-max", number(penalty.rho2_max, text::at_least(0)), "cap; 0 = by learning rate with kappa, else none",
           {with.duals(), with.other_nodes()});
  list.add(
      "start-from",
      text::choice(consensus.start_from, {{"z", strategies::StartFrom::kZ}, {"theta", strategies::StartFrom::kTheta}}),
      "what local steps start from", {with.duals()});
  list.add("aux",
           text::choice(consensus.aux,
                        {{"average", strategies::AuxTensors::kAverage}, {"admm", strategies::AuxTensors::kAdmm}}),
           "tensors outside every group", {with.duals()});
  list.add("after-freeze",
           text::choice(o.after_freeze, {{"nesterov", AfterFreeze::kNesterov},
                                         {"average", AfterFreeze::kAverage},
                                         {"admm", AfterFreeze::kAdmm}}),
           "exchanges with final masks",
           {{"`strategy` hsadmm and hsadmm_flat",
             [&o] { return facts_of(o.strategy).duals ? "" : o.strategy + " has its own"; }},
            {"", [&o] {
               if (o.after_freeze == AfterFreeze::kAdmm) return no_duals(o);
               const bool steps = o.after_freeze == AfterFreeze::kAverage && o.outer_from.value_or(0) > 0;
               return steps ? std::string("`outer_from` wants an outer step then, too") : "";
             }}});
  describe_outer_step(list, o, with);
  list.add("tolerance", number(consensus.tolerance, text::at_least(0)),
           "stop when nothing is left to be pruned and the residuals of the duals are below it; 0 = off",
           {with.duals(),
            with.of("`after_freeze` admm, a later `freeze_after`, or no masks", no_lasting_duals),
            {"runs that stop cutting",
             [&o] { return o.pruning.below > 0 ? "`prune_below` looks for cuts until the end" : ""; }}});
}

}  // namespace

void describe_strategies(text::OptionList& list, TrainOptions& options) {
  const Conditions with{options};
  describe_masks(list, options, with);
  describe_cuts(list, options, with);
  describe_strategy(list, options, with);
  describe_consensus(list, options, with);
}

std::vector<std::string> loop_options() {
  static const std::set<std::string> kOfTheCommand = {
      // a loop decides these itself, or calls them by another name
      "strategy",           "preset",        "no-shrink",         "prune-to",    "prune-below",
      "prune-steps",        "prune-every",   "prune-at",          "importance",  "normalizer",
      "importance-samples", "density",       "no-error-feedback", "dgc",         "dgc-clip",
      "dgc-warmup-epochs",  "powersgd-rank", "powersgd-start",    "local-after", "in-node"};
  TrainOptions options;
  text::OptionList list;
  describe_strategies(list, options);
  std::vector<std::string> names{"exchange"};
  for (const auto& option : list.all()) {
    if (!kOfTheCommand.contains(option.name)) names.push_back(option.name);
  }
  return names;
}

}  // namespace prunex::train
