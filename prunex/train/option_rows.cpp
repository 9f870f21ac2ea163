// Every option of a training run: name, field, range, when it has an effect, help.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <set>
#include <stdexcept>

#include "prunex/models/models.h"
#include "prunex/prune/importance.h"
#include "prunex/prune/plan.h"
#include "prunex/prune/regularizer.h"
#include "prunex/train/mask_choice.h"
#include "prunex/train/options.h"
#include "prunex/train/strategy_choice.h"

namespace prunex::train {
namespace {

using text::between;
using text::Condition;
using text::count_or;
using text::flag;
using text::no_flag;
using text::number;
using text::OptionList;
using text::OptionValue;
using text::refuse_value;

constexpr double kMostExchanges = 1e9;  // products of two of them are counted, too
constexpr double kMostThreads = 1024;
constexpr auto kMostImages = static_cast<double>(std::numeric_limits<int64_t>::max());

const text::Range kMomenta{.least = 0, .most = 1, .without_most = true, .wanted = "a number in [0, 1)"};
const text::Range kInnerShare{
    .least = 0, .most = 1, .without_least = true, .without_most = true, .wanted = "a share in (0, 1)"};
const text::Range kSeconds{.least = 0.001, .most = 1e6, .wanted = "seconds from 0.001 to 1e6"};
const text::Range kSecondsOrOff{
    .least = 0.001, .most = 1e6, .or_zero = true, .wanted = "seconds from 0.001 to 1e6, or 0 for off"};

// When an option has an effect. Each function says why it has none, or nothing.

std::string no_masks(const TrainOptions& o) {
  if (group_words(o) != "none") return "";
  if (facts_of(o.strategy).gradients) return o.strategy + " does not prune";
  return o.groups == "none" ? "`groups` none masks nothing" : o.strategy + " masks nothing without `groups`";
}

std::string no_target(const TrainOptions& o) {
  return o.pruning.target.empty() ? "nothing is cut without `prune_to`" : "";
}

std::string no_duals(const TrainOptions& o) {
  if (!facts_of(o.strategy).duals) return o.strategy + " has no duals";
  return o.consensus.penalty.kappa == 0 ? "there are no duals with `kappa` 0" : "";
}

std::string no_nodes(const TrainOptions& o) {
  return facts_of(o.strategy).one_node ? o.strategy + " takes all ranks for one node" : "";
}

std::string no_penalty(const TrainOptions& o) {
  return with_defaults(o).sparse.penalty == "none" ? "nothing is penalised without `sparse`" : "";
}

std::string needs_data(const std::string& importance) {
  if (importance == kNormImportance || !prune::needs_evidence(prune::importance_named(importance).criterion)) {
    return importance + " looks at no images";
  }
  return "";
}

/// `fits`: nothing, where both do not.
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
  Condition nodes() const { return of("strategies that know nodes", no_nodes); }
  Condition penalty() const { return of("`sparse`", no_penalty); }
  Condition masks_or_target() const {
    return of("masks or `prune_to`", [](const auto& all) { return either(no_masks(all), no_target(all)); });
  }
  /// One-shot pruning has a schedule of its own.
  Condition gradual() const {
    return of("masks that come step by step", [](const TrainOptions& all) {
      return all.strategy == "one_shot" ? "one_shot prunes once, after `prune_at`" : no_masks(all);
    });
  }
  Condition outer_step() const {
    return of("an outer step", [](const TrainOptions& all) {
      if (facts_of(all.strategy).gradients) return all.strategy + " has no outer step";
      return has_outer_step(all) ? "" : all.strategy + " has no outer step without `outer_from`";
    });
  }
  Condition own_phase() const {
    return of("`sparse_epochs`", [](const TrainOptions& all) {
      return all.sparse.epochs > 0 ? "" : std::string("there is no phase of its own without `sparse_epochs`");
    });
  }
  Condition finetuning() const {
    return of("`finetune_epochs`", [](const TrainOptions& all) {
      return all.finetune.epochs > 0 ? "" : std::string("there is no such phase without `finetune_epochs`");
    });
  }
};

/// The empty one stands for the importance's own.
std::vector<std::string> normalizer_words() {
  std::vector<std::string> words = prune::normalizer_names();
  words.insert(words.begin(), "");
  return words;
}

// Values of forms of their own.

/// "2" or "2,1".
OptionValue ranks_per_node(std::vector<int>& field) {
  const auto read = [&field](const std::string& list) {
    std::vector<int> numbers;
    for (const auto& word : text::split(list)) {
      const auto one = text::number_in<int64_t>(word);
      if (!one) refuse_value(list, "a number, or several such as 2,1");
      numbers.push_back(static_cast<int>(std::clamp<int64_t>(*one, -1, std::numeric_limits<int>::max())));
    }
    if (numbers.empty()) refuse_value(list, "a number, or several such as 2,1");
    field = numbers;
  };
  const auto check = [&field] {
    for (const int ranks : field) text::check_range(between(1, comm::kMostRanks), ranks);
  };
  return {.type = "TEXT",
          .read = read,
          .write = [&field] { return fmt::format("{}", fmt::join(field, ",")); },
          .check = check};
}

/// A share, or what is left of the network: budget.
OptionValue keep_value(TrainOptions& o) {
  const auto read = [&o](const std::string& word) {
    const auto share = text::number_in<double>(word);
    const bool is_budget = word.find('=') != std::string::npos;
    if (!share && !is_budget) refuse_value(word, "a share in (0, 1], macs=M, parameters=P or speed-up=X");
    o.budget = is_budget ? word : "";
    if (share) o.keep = *share;
  };
  return {.type = "SHARE|NAME=NUMBER",
          .read = read,
          .write = [&o] { return o.budget.empty() ? fmt::format("{}", o.keep) : o.budget; },
          .check = [&o] { text::check_range(text::share(), o.keep); }};
}

std::optional<double> seconds_in(const std::string& text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {{"min", 60}, {"s", 1}, {"h", 3600}};
  for (const auto& [unit, seconds] : kUnits) {
    if (!text.ends_with(unit)) continue;
    const auto number = text::number_in<double>(text.substr(0, text.size() - unit.size()));
    if (number) return *number * seconds;
  }
  return std::nullopt;
}

/// A number of exchanges, a time such as 90s, 10min or 1h, or auto.
OptionValue checkpoints(TrainOptions& o) {
  const auto read = [&o](const std::string& word) {
    const TrainOptions usual;
    const auto exchanges = text::number_in<int64_t>(word);
    const auto seconds = seconds_in(word);
    if (word != "auto" && !(exchanges && *exchanges >= 0) && !(seconds && *seconds > 0)) {
      refuse_value(word, "a number of exchanges, a time such as 90s, 10min or 1h, or auto");
    }
    o.checkpoint_every = exchanges.value_or(kAutomatic);
    o.checkpoint_seconds = seconds.value_or(usual.checkpoint_seconds);
  };
  const auto write = [&o] {
    if (o.checkpoint_every != kAutomatic) return fmt::format("{}", o.checkpoint_every);
    const bool usual = o.checkpoint_seconds == TrainOptions().checkpoint_seconds;
    return usual ? std::string("auto") : fmt::format("{}s", o.checkpoint_seconds);
  };
  const auto check = [&o] {
    if (o.checkpoint_every != kAutomatic) text::check_range(between(0, kMostExchanges), o.checkpoint_every);
    text::check_range(text::above_zero(), o.checkpoint_seconds);
  };
  return {.type = "INT|TIME|auto", .read = read, .write = write, .check = check};
}

OptionValue layer_ratios(std::vector<prune::LayerRatio>& field) {
  const auto read = [&field](const std::string& list) {
    field.clear();
    for (const auto& word : text::split(list)) {
      const auto ratio = prune::parse_assignment(word);
      if (!ratio) refuse_value(word, "NAME=RATIO");
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

const std::vector<std::pair<std::string, LearningRateSchedule>> kSchedules{
    {"cosine", LearningRateSchedule::kCosine},
    {"step", LearningRateSchedule::kStep},
    {"constant", LearningRateSchedule::kConstant}};

OptionValue phase_schedule(std::optional<LearningRateSchedule>& field) {
  std::vector<std::pair<std::string, std::optional<LearningRateSchedule>>> words{{"auto", std::nullopt}};
  words.insert(words.end(), kSchedules.begin(), kSchedules.end());
  return text::choice(field, words);
}

void describe_network(OptionList& list, TrainOptions& o) {
  const auto is_file = [&o] { return o.model.ends_with(".pt2"); };
  list.topic("Model");
  list.add("model", text::one_of(o.model, models::model_names(), ".pt2"),
           "a built-in network, or a program saved by torch.export.save")
      .basic();
  list.add("width", number(o.width, text::above_zero()), "multiplies the channels of the CIFAR ResNets")
      .when({"built-in networks",
             [is_file] { return is_file() ? std::string("the network of a file has its own") : ""; }});
  list.add("max-model-size", number(o.max_model_size, between(0, 0x1p40)),
           "MiB that the records of a FILE.pt2 may have together; 0: eight times the file")
      .circumstance()
      .when({"FILE.pt2", [is_file, &o] { return is_file() ? "" : fmt::format("{} is built in", o.model); }});
  list.add("weights", text::text_value(o.weights), "FILE.safetensors to start from").basic();
}

void describe_ranks(OptionList& list, TrainOptions& o) {
  using strategies::ExchangeForm;
  list.topic("Ranks");
  list.add("nodes", number(o.nodes, between(1, comm::kMostRanks)),
           "nodes; started on this machine unless a launcher did")
      .basic();
  list.add("ranks-per-node", ranks_per_node(o.ranks_per_node), "ranks on each node: one number, or one per node as 2,1")
      .basic();
  list.add("sites", number(o.sites, text::at_least(1)),
           "the nodes form so many equal, consecutive shares behind slow links");
  list.add("exchange",
           text::choice(
               o.exchange.form,
               {{"sharded", ExchangeForm::kSharded}, {"leader", ExchangeForm::kLeader}, {"flat", ExchangeForm::kFlat}}),
           "every local rank sends its shard, or one leader per node everything; flat: one ring of all ranks (ddp)")
      .when({"strategies that sum whole tensors",
             [&o] { return facts_of(o.strategy).sums ? "" : o.strategy + " has one form of exchange"; }});
  list.add("threads", number(o.threads, between(1, kMostThreads)), "threads per rank").basic().resumable();
  describe_links(list, o.ranks);
}

void describe_local_training(OptionList& list, TrainOptions& o) {
  list.topic("Local training");
  list.add("epochs", number(o.epochs, text::at_least(0)), "passes over the training set by all ranks together").basic();
  list.add("exchanges", number(o.exchanges, between(0, kMostExchanges)),
           "instead of --epochs: exactly so many exchanges; 0 = off");
  list.add("local-steps", number(o.local_steps, between(1, kMostExchanges)), "optimizer steps between exchanges (H)")
      .basic();
  list.add("batch-size", number(o.batch_size, between(1, kMostImages)), "images per rank and step").basic();
  list.add("lr", number(o.learning_rate, text::above_zero()), "peak learning rate").basic();
  list.add("lr-schedule", text::choice(o.schedule, kSchedules), "of the learning rate").basic();
  list.add("warmup-epochs", number(o.warmup_epochs, text::at_least(0)), "linear rise to the peak").basic();
  list.add("momentum", number(o.momentum, kMomenta), "of the local SGD");
  list.add("weight-decay", number(o.weight_decay, text::at_least(0)), "of the local SGD");
  list.add("precision",
           text::choice(o.precision,
                        {{"auto", Precision::kAuto}, {"fp32", Precision::kFp32}, {"bf16", Precision::kBf16}}),
           "arithmetic of the local steps; auto: bf16 if every processor has it")
      .basic();
  list.add("seed", number(o.seed), "of weights, order and augmentation").basic().is_identity = false;
}

void describe_masks(OptionList& list, TrainOptions& o, const Conditions& with) {
  const text::Range exchanges = between(1, kMostExchanges);
  list.topic("Pruning");
  list.add("groups", text::text_value(o.groups),
           "coupled-inner, coupled, filter, channel, shape, none; joined by +, each with :KEEP; auto: coupled-inner "
           "where the strategy prunes by itself, else none")
      .basic();
  list.add("keep", keep_value(o),
           "share of units kept per group, in (0, 1]; or of the network: macs=M, parameters=P (a share or a count) or "
           "speed-up=X, met by masks as --scope and limits say")
      .basic()
      .when(with.masks());
  list.add("round-to", count_or(o.round_to, {{"auto", kAutomatic}}, between(1, prune::kMostMultiple)),
           "coupled groups keep a multiple of N units; auto: by group size")
      .when(with.masks_or_target());
  list.add("no-shrink", no_flag(o.shrink), "train on with masks instead of cutting the model").when(with.masks());
  list.add("mask-rule",
           text::choice(o.masks.rule,
                        {{"joint", strategies::MaskRule::kJoint}, {"union", strategies::MaskRule::kUnion}}),
           "one mask for all nodes, or each node's own")
      .when(with.masks())
      .when(with.nodes());
  list.add("mask-importance", text::one_of(o.mask_importance, mask_importance_names()),
           "what ranks units for masks: norm (of all their weights), or as --importance")
      .when(with.masks());
  list.add("keep-schedule",
           text::choice(o.keep_ramp, {{"cubic", sparsity::KeepRamp::kCubic}, {"hard", sparsity::KeepRamp::kHard}}),
           "gradual, or the final share at once")
      .when(with.gradual());
  list.add("prune-start", number(o.prune_start, exchanges), "first exchange that prunes").when(with.gradual());
  list.add("prune-end", count_or(o.prune_end, {{"auto", kAutomatic}}, exchanges),
           "first exchange at the final share; auto: half of the run")
      .when(with.gradual());
  list.add("freeze-after",
           count_or(o.freeze_after, {{"auto", kAutomatic}, {"never", strategies::kNever}}, between(0, kMostExchanges)),
           "last exchange that changes masks; auto: --prune-end; never")
      .when(with.gradual());
  list.add("freeze-when-stable", number(o.masks.freeze_when_stable, between(0, kMostExchanges)),
           "freeze after so many exchanges without a change; 0 = off")
      .when(with.gradual());
}

void describe_sparse_training(OptionList& list, TrainOptions& o, const Conditions& with) {
  auto& sparse = o.sparse;
  const auto is_penalty = [&o](const char* name) {
    return Condition{fmt::format("`sparse` {}", name), [&o, name] {
                       const std::string penalty = with_defaults(o).sparse.penalty;
                       return penalty == name ? "" : fmt::format("`sparse` {} does not read it", penalty);
                     }};
  };
  list.topic("Sparse training");
  list.add("sparse", text::one_of(sparse.penalty, prune::penalty_names()), "what is added to the gradients");
  list.add("sparse-reg", number(sparse.strength, text::above_zero(), "auto"),
           "its strength; auto: what is usual for it")
      .when(with.penalty());
  list.add("sparse-epochs", number(sparse.epochs, text::at_least(0)),
           "of a phase of its own after the training; 0 = during the training")
      .when(with.penalty());
  list.add("sparse-growth", number(sparse.growth, text::at_least(0)),
           "growing: by so much per epoch for the weakest unit")
      .when(is_penalty("growing"));
  list.add("sparse-share", number(sparse.loss_share, kInnerShare),
           "group_lasso without --sparse-reg: its share of the loss at the start")
      .when(is_penalty("group_lasso"))
      .when(
          {"`sparse_reg` auto", [&o] { return o.sparse.strength ? std::string("`sparse_reg` is the strength") : ""; }});
  list.add("sparse-warmup", number(sparse.warmup_epochs, text::at_least(0)),
           "epochs in which the strength rises from 0")
      .when(with.penalty());
  list.add("sparse-refresh", number(sparse.refresh_every, between(1, kMostExchanges)),
           "exchanges between new coefficients")
      .when(with.penalty());
  list.add("sparse-lr", number(sparse.learning_rate, text::above_zero(), "auto"), "of the own phase; auto: as --lr")
      .when(with.own_phase());
  list.add("sparse-lr-schedule", phase_schedule(sparse.schedule), "of the own phase; auto: as --lr-schedule")
      .when(with.own_phase());
  list.add("sparse-weight-decay", number(sparse.weight_decay, text::at_least(0)), "of the own phase")
      .when(with.own_phase());
  list.add("finetune-epochs", number(o.finetune.epochs, text::at_least(0)), "after the cuts of --prune-to");
  list.add("finetune-lr", number(o.finetune.learning_rate, text::above_zero(), "auto"), "auto: as --lr")
      .when(with.finetuning());
  list.add("finetune-lr-schedule", phase_schedule(o.finetune.schedule), "auto: as --lr-schedule")
      .when(with.finetuning());
}

void describe_cuts(OptionList& list, TrainOptions& o, const Conditions& with) {
  auto& pruning = o.pruning;
  auto& limits = pruning.plan.limits;
  list.topic("Pruning by importance");
  list.add("prune-to", text::text_value(pruning.target),
           "ratio=R, macs=M, parameters=P or speed-up=X, as prunex prune has them");
  list.add("prune-below", number(pruning.below, text::at_least(0)),
           "instead: units whose weights are all smaller, all through training");
  list.add("prune-steps", number(pruning.steps, between(1, kMostExchanges)), "cuts to the target").when(with.target());
  list.add("prune-every", number(pruning.every, between(0, kMostExchanges)),
           "exchanges between cuts; 0: all steps after one exchange")
      .when({"several cuts", [&o] {
               const auto& cuts = with_defaults(o).pruning;
               if (cuts.below > 0) return std::string();
               return cuts.steps > 1 ? no_target(o) : "there is one cut at most: `prune_steps` is 1";
             }});
  list.add("importance", text::one_of(pruning.importance, prune::importance_names()), "what ranks the units")
      .when(with.target());
  list.add("normalizer", text::one_of(pruning.normalizer, normalizer_words()),
           "what makes groups comparable (the importance's own)")
      .when(with.target());
  list.add("importance-samples", number(pruning.importance_samples, between(1, kMostImages)),
           "training images that gradients and activations are of; for masks, too")
      .when({"an importance that looks at images", [&o] {
               const std::string masks = no_masks(o), target = no_target(o);
               return either(masks.empty() ? needs_data(o.mask_importance) : masks,
                             target.empty() ? needs_data(o.pruning.importance) : target);
             }});
  list.add("scope",
           text::choice(pruning.plan.scope, {{"local", prune::Scope::kLocal},
                                             {"isomorphic", prune::Scope::kIsomorphic},
                                             {"global", prune::Scope::kGlobal}}),
           "units compared with one another: of a group, of groups of one structure, or all")
      .when(with.masks_or_target());
  list.add("max-ratio", number(limits.max_ratio, {.least = 0, .most = 1, .wanted = "a share in [0, 1]"}),
           "largest share of a group's units that a cut removes")
      .when(with.masks_or_target());
  list.add("layer-ratio", layer_ratios(limits.ratios),
           "another share that goes, for layers of this name: NAME=R,NAME=R")
      .when(with.masks_or_target());
  list.add("ignore", text::text_list(limits.ignore),
           "layers whose outputs stay: names with * and ?, separated by commas")
      .when(with.masks_or_target());
}

void describe_strategies(OptionList& list, TrainOptions& o, const Conditions& with) {
  using strategies::Payload;
  auto& dgc = o.top_k.dgc_options;
  const Condition deep{"`dgc`", [&o] { return o.top_k.dgc ? "" : std::string("it is a part of `dgc`"); }};
  list.topic("Strategy");
  list.add("strategy", text::one_of(o.strategy, strategy_names()),
           "what ranks say to each other, and when: docs/strategies.md")
      .basic();
  list.add("preset", text::one_of(o.preset, {"", "paper"}),
           "paper: the published form and hyper-parameters; other options win");
  list.add("payload",
           text::choice(o.exchange.payload, {{"fp32", Payload::kFp32},
                                             {"bf16", Payload::kBf16},
                                             {"fp16", Payload::kFp16},
                                             {"int8", Payload::kInt8},
                                             {"int4", Payload::kInt4},
                                             {"int2", Payload::kInt2}}),
           "numbers between nodes; weights are rounded with error feedback")
      .basic();
  list.add("local-after", number(o.local_after, between(0, kMostExchanges)),
           "post-local SGD: gradients in every step for so many exchanges");
  list.add("prune-at", number(o.prune_at, kInnerShare), "one_shot: prune after this share of the run")
      .when({"`strategy` one_shot, or `prune_to` without `finetune_epochs`", [&o] {
               if (o.strategy == "one_shot") return std::string();
               const std::string why = no_target(o);
               return why.empty() && o.finetune.epochs > 0 ? "cuts come where fine-tuning begins" : why;
             }});
  list.add("density", number(o.top_k.density, text::share()), "top_k: share of the gradient's entries sent")
      .when(with.strategy("top_k"));
  list.add("no-error-feedback", no_flag(o.top_k.error_feedback), "top_k: forget what is not sent, as weak baselines do")
      .when(with.strategy("top_k"));
  list.add("dgc", flag(o.top_k.dgc), "top_k: deep gradient compression").when(with.strategy("top_k"));
  list.add("dgc-warmup-epochs", number(o.dgc_warmup_epochs, text::at_least(0)), "density falls from 0.25")
      .when(with.strategy("top_k"))
      .when(deep);
  list.add("dgc-clip", number(dgc.clip, text::at_least(0)), "largest norm of the gradient; 0 = off")
      .when(with.strategy("top_k"))
      .when(deep);
  list.add("powersgd-rank", number(o.powersgd.rank, text::at_least(1)), "columns of the factors")
      .when(with.strategy("powersgd"));
  list.add("powersgd-start", number(o.powersgd.start_after, text::at_least(0)), "steps with whole gradients before")
      .when(with.strategy("powersgd"));
}

void describe_consensus(OptionList& list, TrainOptions& o, const Conditions& with) {
  using admm::PenaltyRule;
  using strategies::AfterFreeze;
  auto& consensus = o.consensus;
  auto& penalty = consensus.penalty;
  const Condition first_values{
      "`penalty` other than kappa",
      [&penalty] { return penalty.rule == PenaltyRule::kKappa ? std::string("it follows from `kappa`") : ""; }};
  list.topic("Consensus");
  list.add("as-printed", flag(consensus.as_printed), "Eq. 9 as the paper prints it, to see what it does")
      .when(with.duals());
  list.add("penalty",
           text::choice(penalty.rule, {{"kappa", PenaltyRule::kKappa},
                                       {"residual", PenaltyRule::kResidual},
                                       {"geometric", PenaltyRule::kGeometric},
                                       {"fixed", PenaltyRule::kFixed}}),
           "how rho1 and rho2 change")
      .when(with.duals());
  list.add("kappa", number(penalty.kappa, text::at_least(0)), "pull towards the node's model per exchange; 0 = no ADMM")
      .when({"duals and `penalty` kappa", [&o] {
               if (!facts_of(o.strategy).duals) return no_duals(o);
               const bool reads = o.consensus.penalty.rule == PenaltyRule::kKappa || o.consensus.penalty.kappa == 0;
               return reads ? "" : std::string("other rules of `penalty` do not read it");
             }});
  list.add("rho1", number(penalty.rho1, text::above_zero()), "first value where --penalty is not kappa")
      .when(with.duals())
      .when(first_values);
  list.add("rho2", number(penalty.rho2, text::at_least(0)), "first value where --penalty is not kappa")
      .when(with.duals())
      .when(with.nodes())
      .when(first_values);
  list.add("rho1-max", number(penalty.rho1_max, text::at_least(0)), "cap; 0 = by learning rate with kappa, else none")
      .when(with.duals());
  list.add("rho2-max", number(penalty.rho2_max, text::at_least(0)), "cap; 0 = by learning rate with kappa, else none")
      .when(with.duals())
      .when(with.nodes());
  list.add("start-from",
           text::choice(consensus.start_from,
                        {{"z", strategies::StartFrom::kZ}, {"theta", strategies::StartFrom::kTheta}}),
           "what local steps start from")
      .when(with.duals());
  list.add("aux",
           text::choice(consensus.aux,
                        {{"average", strategies::AuxTensors::kAverage}, {"admm", strategies::AuxTensors::kAdmm}}),
           "tensors outside every group")
      .when(with.duals());
  list.add("after-freeze",
           text::choice(o.after_freeze, {{"nesterov", AfterFreeze::kNesterov},
                                         {"average", AfterFreeze::kAverage},
                                         {"admm", AfterFreeze::kAdmm}}),
           "exchanges with final masks")
      .when({"`strategy` hsadmm and hsadmm_flat",
             [&o] { return facts_of(o.strategy).duals ? "" : o.strategy + " has its own"; }});
  list.add("outer-lr", number(o.outer.rate, text::above_zero()), "of the Nesterov step").when(with.outer_step());
  list.add("outer-momentum", number(o.outer_momentum, kMomenta, "auto"),
           "of the Nesterov step; auto: 0.8 for H-SADMM, 0.9 elsewhere")
      .when(with.outer_step());
  OptionValue from = number(o.outer_from, between(0, kMostExchanges), "auto");
  list.add("outer-from", from,
           "Nesterov step from this exchange on; 0 = from the freeze; auto: 1 for hsadmm, hsadmm_flat and diloco, else "
           "0")
      .when({"strategies that exchange weights",
             [&o] { return facts_of(o.strategy).gradients ? o.strategy + " has no outer step" : ""; }});
  list.add("tolerance", number(consensus.tolerance.relative, text::at_least(0)),
           "stop when the residuals of the duals are below it; 0 = off")
      .when(with.duals());
}

void describe_run(OptionList& list, TrainOptions& o) {
  list.topic("Run");
  list.add("eval-every", number(o.eval_every, between(0, kMostExchanges)),
           "exchanges between evaluations; 0 = at the end only")
      .basic()
      .circumstance();
  list.add("run-dir", text::text_value(o.run_dir), "results; default: runs/<dataset>-<model>-<strategy>-<n>")
      .basic()
      .not_in_files();
  list.add("trace", flag(o.trace), "write trace.json: when every rank did what, for Perfetto").circumstance();
  list.add("checkpoint-every", checkpoints(o),
           "exchanges between checkpoints, or a time as 90s, 10min, 1h; auto: 5min; 0 = none, at a signal neither")
      .basic()
      .circumstance();
  list.add("resume", text::text_value(o.resume), "run directory to go on in, with its configuration")
      .basic()
      .not_in_files();
  list.add("resume-exchange", number(o.resume_exchange, between(0, kMostExchanges)),
           "go on from this checkpoint; 0 = the newest")
      .not_in_files()
      .when({"`resume`", [&o] { return o.resume.empty() ? "needs `resume`, which says where to go on" : ""; }});
  list.add("quiet", flag(o.quiet), "no progress, only results").basic().circumstance();
  list.add("log",
           text::choice(o.log,
                        {{"plain", LogForm::kPlain}, {"timestamps", LogForm::kTimestamps}, {"json", LogForm::kJson}}),
           "form of the progress: lines, lines with the time, or JSON objects")
      .basic()
      .circumstance();
}

/// PruneX (arXiv 2512.14628), section 5.1.5 and algorithm 1, with the corrected equations. --local-steps is up to the
/// data: the paper has 5 to 10 epochs.
constexpr std::pair<const char*, const char*> kPaper[] = {
    {"groups", "channel"},    {"keep", "0.5"},         {"keep-schedule", "hard"},
    {"mask-rule", "union"},   {"exchange", "leader"},  {"penalty", "residual"},
    {"rho1", "0.0015"},       {"rho2", "0.00015"},     {"rho1-max", "10"},
    {"rho2-max", "10"},       {"start-from", "theta"}, {"aux", "admm"},
    {"after-freeze", "admm"}, {"lr", "0.001"},         {"lr-schedule", "constant"},
    {"warmup-epochs", "0"},   {"momentum", "0.9"},     {"weight-decay", "0.0001"},
    {"batch-size", "128"}};

}  // namespace

void describe_data(OptionList& list, data::DataOptions& data) {
  const auto of_set = [&data](const std::string& what, const std::vector<std::string>& sets) {
    return Condition{what, [&data, sets] {
                       if (std::find(sets.begin(), sets.end(), data.dataset) != sets.end()) return std::string();
                       return data.dataset.empty() ? "no `dataset` is named"
                                                   : fmt::format("`dataset` {} does not read it", data.dataset);
                     }};
  };
  const Condition any{"", [&data] { return data.dataset.empty() && data.test.empty() ? "no `dataset` is named" : ""; }};
  list.topic("Data");
  list.add("dataset", text::one_of(data.dataset, {"synthetic", "cifar10", "cifar100"}, ".safetensors"),
           "built-in or CIFAR images, or a file with images and labels")
      .basic();
  list.add("test", text::text_value(data.test), "test set when --dataset is a file").basic();
  list.add("data-dir", text::text_value(data.data_dir),
           "folder of cifar10 and cifar100 in their official binary layout")
      .basic()
      .circumstance()
      .when(of_set("cifar10, cifar100", {"cifar10", "cifar100"}));
  list.add("samples", number(data.samples), "training images of synthetic").when(of_set("synthetic", {"synthetic"}));
  list.add("train-limit", number(data.train_limit), "use the first N training images; 0 = all").when(any);
  list.add("test-limit", number(data.test_limit), "use the first N test images; 0 = all").when(any);
  list.add("validation", number(data.validation), "hold out the last N training images and score them too").when(any);
}

void describe_links(OptionList& list, RankOptions& ranks) {
  list.add("interface", text::text_list(ranks.interfaces),
           "network interface, such as eth0; rails take turns on several: a,b")
      .circumstance();
  list.add("no-shared-memory", no_flag(ranks.shared_memory), "loopback inside a node, as where there is no /dev/shm")
      .resumable();
  list.add("join-timeout", number(ranks.join_timeout, kSeconds),
           "seconds that the ranks have to come together at the start")
      .circumstance();
  list.add("comm-timeout", number(ranks.comm_timeout, kSeconds), "seconds to wait for another rank's message")
      .circumstance();
  list.add("heartbeat-timeout", number(ranks.heartbeat_timeout, kSecondsOrOff),
           "seconds of silence after which a rank counts as lost; 0 = off")
      .circumstance();
  list.add("device", text::one_of(ranks.device, {"cpu", "cuda"}),
           "where to compute; cuda: the i-th rank of a machine on its i-th GPU, in turn")
      .basic();
}

OptionList describe(TrainOptions& options) {
  OptionList list;
  const Conditions with{options};
  describe_data(list, options.data);
  describe_network(list, options);
  describe_ranks(list, options);
  describe_local_training(list, options);
  describe_masks(list, options, with);
  describe_sparse_training(list, options, with);
  describe_cuts(list, options, with);
  describe_strategies(list, options, with);
  describe_consensus(list, options, with);
  describe_run(list, options);
  return list;
}

bool may_differ(const std::string& name) {
  static const std::set<std::string> names = [] {
    TrainOptions options;
    std::set<std::string> found;
    const OptionList list = describe(options);
    for (const auto& option : list.all()) {
      if (option.may_differ) found.insert(option.name);
    }
    return found;
  }();
  return names.contains(name);
}

void apply_preset(OptionList& list, const TrainOptions& options) {
  if (options.preset != "paper") return;
  for (const auto& [name, value] : kPaper) {
    text::Option* option = list.find(name);
    if (!option->given) option->value.read(value);
  }
  for (const auto& [name, value] : kPaper) {
    text::Option* option = list.find(name);
    if (!option->given && !option->why_idle().empty()) option->value.read(option->usual);
  }
}

}  // namespace prunex::train
