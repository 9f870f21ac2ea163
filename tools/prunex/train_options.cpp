#include "tools/prunex/train_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <stdexcept>
#include <vector>

#include "prunex/models/models.h"
#include "prunex/prune/plan.h"
#include "prunex/prune/regularizer.h"
#include "prunex/train/mask_importance.h"
#include "prunex/train/strategy_choice.h"
#include "tools/prunex/checkpoint_option.h"
#include "tools/prunex/checks.h"
#include "tools/prunex/choices.h"
#include "tools/prunex/config_file.h"
#include "tools/prunex/data_options.h"

namespace prunex::tools {
namespace {

using train::TrainOptions;

void add_network_options(CLI::App& app, TrainCommand& command) {
  auto& options = command.options;
  const std::string group = "Model";
  app.add_option("--model", options.model, "a built-in network, or a program saved by torch.export.save")
      ->check(one_of(models::model_names(), ".pt2"))
      ->type_name("")
      ->group(group);
  app.add_option("--width", options.width, "multiplies the channels of the CIFAR ResNets")->group(group);
  add_model_limit(app, options.max_model_size)->group(group);
  app.add_option("--weights", options.weights, "FILE.safetensors to start from")->group(group);
}

void add_layout_options(CLI::App& app, TrainCommand& command) {
  auto& options = command.options;
  const std::string group = "Ranks";
  app.add_option("--nodes", options.nodes, "nodes; started on this machine unless a launcher did")->group(group);
  app.add_option("--ranks-per-node", command.ranks_per_node, "ranks on each node: one number, or one per node as 2,1")
      ->group(group);
  app.add_option("--sites", options.sites, "the nodes form so many equal, consecutive shares behind slow links")
      ->group(group);
  add_choice<strategies::ExchangeForm>(
      app, "--exchange", options.hsadmm.exchange,
      {{"sharded", strategies::ExchangeForm::kSharded},
       {"leader", strategies::ExchangeForm::kLeader},
       {"flat", strategies::ExchangeForm::kFlat}},
      "every local rank sends its shard, or one leader per node everything; flat: one ring of all ranks (ddp)")
      ->group(group);
  app.add_option("--threads", options.threads, "threads per rank")->group(group);
  app.add_option("--interface", command.interface, "network interface, such as eth0; rails take turns on several: a,b")
      ->group(group);
  app.add_flag("--no-shared-memory", command.no_shared_memory, "loopback inside a node, as where there is no /dev/shm")
      ->group(group);
  app.add_option("--join-timeout", command.join_timeout, "seconds that the ranks have to come together at the start")
      ->check(seconds())
      ->group(group);
  app.add_option("--comm-timeout", command.comm_timeout, "seconds to wait for another rank's message")
      ->check(seconds())
      ->group(group);
  app.add_option("--heartbeat-timeout", command.heartbeat_timeout,
                 "seconds of silence after which a rank counts as lost; 0 = off")
      ->check(seconds_or_off())
      ->group(group);
  add_choice<std::string>(app, "--device", command.device, {{"cpu", "cpu"}, {"cuda", "cuda"}},
                          "where to compute; cuda: the i-th rank of a machine on its i-th GPU, in turn")
      ->group(group);
}

template <class Schedule>
Words<Schedule> schedules() {
  return {{"cosine", train::LearningRateSchedule::kCosine},
          {"step", train::LearningRateSchedule::kStep},
          {"constant", train::LearningRateSchedule::kConstant}};
}

void add_sgd_options(CLI::App& app, TrainCommand& command) {
  auto& options = command.options;
  const std::string group = "Local training";
  app.add_option("--epochs", options.epochs, "passes over the training set by all ranks together")->group(group);
  app.add_option("--exchanges", options.exchanges, "instead of --epochs: exactly so many exchanges; 0 = off")
      ->group(group);
  app.add_option("--local-steps", options.local_steps, "optimizer steps between exchanges (H)")->group(group);
  app.add_option("--batch-size", options.batch_size, "images per rank and step")->group(group);
  app.add_option("--lr", options.learning_rate, "peak learning rate")->group(group);
  add_choice(app, "--lr-schedule", options.schedule, schedules<train::LearningRateSchedule>(), "of the learning rate")
      ->group(group);
  app.add_option("--warmup-epochs", options.warmup_epochs, "linear rise to the peak")->group(group);
  app.add_option("--momentum", options.momentum, "of the local SGD")->group(group);
  app.add_option("--weight-decay", options.weight_decay, "of the local SGD")->group(group);
  add_choice<train::Precision>(
      app, "--precision", options.precision,
      {{"auto", train::Precision::kAuto}, {"fp32", train::Precision::kFp32}, {"bf16", train::Precision::kBf16}},
      "arithmetic of the local steps; auto: bf16 if every processor has it")
      ->group(group);
  app.add_option("--seed", options.seed, "of weights, order and augmentation")->check(seed_number())->group(group);
}

void add_pruning_options(CLI::App& app, TrainCommand& command) {
  auto& options = command.options;
  auto& hsadmm = options.hsadmm;
  const std::string group = "Pruning";
  app.add_option(
         "--groups", options.groups,
         "coupled-inner, coupled, filter, channel, shape, none; joined by +, each with :KEEP; auto: coupled-inner "
         "where the strategy prunes by itself, else none")
      ->group(group);
  app.add_option(
         "--keep", command.keep,
         "share of units kept per group, in (0, 1]; or of the network: macs=M, parameters=P (a share or a count) "
         "or speed-up=X, met by masks as --scope and limits say")
      ->type_name("SHARE|NAME=NUMBER")
      ->group(group);
  app.add_option("--round-to", command.round_to, "coupled groups keep a multiple of N units; auto: by group size")
      ->type_name("INT|auto")
      ->group(group);
  app.add_flag("--no-shrink", command.no_shrink, "train on with masks instead of cutting the model")->group(group);
  add_choice<strategies::MaskRule>(app, "--mask-rule", hsadmm.mask_rule,
                                   {{"joint", strategies::MaskRule::kJoint}, {"union", strategies::MaskRule::kUnion}},
                                   "one mask for all nodes, or each node's own")
      ->group(group);
  app.add_option("--mask-importance", options.mask_importance,
                 "what ranks units for masks: norm (of all their weights), or as --importance")
      ->check(one_of(train::mask_importance_names()))
      ->type_name("")
      ->group(group);
  add_choice<sparsity::KeepRamp>(app, "--keep-schedule", options.keep_ramp,
                                 {{"cubic", sparsity::KeepRamp::kCubic}, {"hard", sparsity::KeepRamp::kHard}},
                                 "gradual, or the final share at once")
      ->group(group);
  app.add_option("--prune-start", options.prune_start, "first exchange that prunes")->group(group);
  app.add_option("--prune-end", command.prune_end, "first exchange at the final share; auto: half of the run")
      ->type_name("INT|auto")
      ->group(group);
  app.add_option("--freeze-after", command.freeze_after, "last exchange that changes masks; auto: --prune-end; never")
      ->type_name("INT|auto|never")
      ->group(group);
  app.add_option("--freeze-when-stable", hsadmm.freeze_when_stable,
                 "freeze after so many exchanges without a change; 0 = off")
      ->group(group);
}

void add_schedule_option(CLI::App& app, const char* name, std::optional<train::LearningRateSchedule>& value,
                         const char* description, const std::string& group) {
  auto words = schedules<std::optional<train::LearningRateSchedule>>();
  words.insert(words.begin(), {"auto", std::nullopt});
  add_choice(app, name, value, words, description)->group(group);
}

/// A number, or "auto" for none.
void add_automatic_option(CLI::App& app, const char* name, std::string& word, const char* description,
                          const std::string& group) {
  app.add_option(name, word, description)->group(group)->type_name("FLOAT|auto");
}

void add_sparse_options(CLI::App& app, TrainCommand& command) {
  auto& [penalty, epochs, strength, growth, share, warmup, refresh, rate, schedule, decay] = command.options.sparse;
  const std::string group = "Sparse training";
  app.add_option("--sparse", penalty, "what is added to the gradients")
      ->check(one_of(prune::penalty_names()))
      ->type_name("")
      ->group(group);
  add_automatic_option(app, "--sparse-reg", command.sparse_reg, "its strength; auto: what is usual for it", group);
  app.add_option("--sparse-epochs", epochs, "of a phase of its own after the training; 0 = during the training")
      ->group(group);
  app.add_option("--sparse-growth", growth, "growing: by so much per epoch for the weakest unit")->group(group);
  app.add_option("--sparse-share", share, "group_lasso without --sparse-reg: its share of the loss at the start")
      ->group(group);
  app.add_option("--sparse-warmup", warmup, "epochs in which the strength rises from 0")->group(group);
  app.add_option("--sparse-refresh", refresh, "exchanges between new coefficients")->group(group);
  add_automatic_option(app, "--sparse-lr", command.sparse_lr, "of the own phase; auto: as --lr", group);
  add_schedule_option(app, "--sparse-lr-schedule", schedule, "of the own phase; auto: as --lr-schedule", group);
  app.add_option("--sparse-weight-decay", decay, "of the own phase")->group(group);
  app.add_option("--finetune-epochs", command.options.finetune.epochs, "after the cuts of --prune-to")->group(group);
  add_automatic_option(app, "--finetune-lr", command.finetune_lr, "auto: as --lr", group);
  add_schedule_option(app, "--finetune-lr-schedule", command.options.finetune.schedule, "auto: as --lr-schedule",
                      group);
}

void add_cut_options(CLI::App& app, TrainCommand& command) {
  auto& pruning = command.options.pruning;
  const std::string group = "Pruning by importance";
  app.add_option("--prune-to", pruning.target, "ratio=R, macs=M, parameters=P or speed-up=X, as prunex prune has them")
      ->group(group);
  app.add_option("--prune-below", pruning.below, "instead: units whose weights are all smaller, all through training")
      ->group(group);
  app.add_option("--prune-steps", pruning.steps, "cuts to the target")->group(group);
  app.add_option("--prune-every", pruning.every, "exchanges between cuts; 0: all steps after one exchange")
      ->group(group);
  app.add_option("--importance", pruning.importance, "what ranks the units")
      ->check(one_of(prune::importance_names()))
      ->type_name("")
      ->group(group);
  app.add_option("--normalizer", pruning.normalizer, "what makes groups comparable (the importance's own)")
      ->group(group);
  app.add_option("--importance-samples", pruning.importance_samples,
                 "training images that gradients and activations are of; for masks, too")
      ->group(group);
  add_choice<prune::Scope>(
      app, "--scope", pruning.plan.scope,
      {{"local", prune::Scope::kLocal}, {"isomorphic", prune::Scope::kIsomorphic}, {"global", prune::Scope::kGlobal}},
      "units compared with one another: of a group, of groups of one structure, or all")
      ->group(group);
  app.add_option("--max-ratio", pruning.plan.limits.max_ratio, "largest share of a group's units that a cut removes")
      ->group(group);
  app.add_option("--layer-ratio", command.layer_ratios,
                 "another share that goes, for layers of this name: NAME=R,NAME=R")
      ->group(group);
  app.add_option("--ignore", command.ignore, "layers whose outputs stay: names with * and ?, separated by commas")
      ->group(group);
}

void add_consensus_options(CLI::App& app, TrainCommand& command) {
  auto& hsadmm = command.options.hsadmm;
  const std::string group = "Consensus";
  app.add_flag("--as-printed", hsadmm.as_printed, "Eq. 9 as the paper prints it, to see what it does")->group(group);
  add_choice<admm::PenaltyRule>(app, "--penalty", hsadmm.penalty.rule,
                                {{"kappa", admm::PenaltyRule::kKappa},
                                 {"residual", admm::PenaltyRule::kResidual},
                                 {"geometric", admm::PenaltyRule::kGeometric},
                                 {"fixed", admm::PenaltyRule::kFixed}},
                                "how rho1 and rho2 change")
      ->group(group);
  app.add_option("--kappa", hsadmm.penalty.kappa, "pull towards the node's model per exchange; 0 = no ADMM")
      ->group(group);
  app.add_option("--rho1", hsadmm.penalty.rho1, "first value where --penalty is not kappa")->group(group);
  app.add_option("--rho2", hsadmm.penalty.rho2, "first value where --penalty is not kappa")->group(group);
  app.add_option("--rho1-max", hsadmm.penalty.rho1_max, "cap; 0 = by learning rate with kappa, else none")
      ->group(group);
  app.add_option("--rho2-max", hsadmm.penalty.rho2_max, "cap; 0 = by learning rate with kappa, else none")
      ->group(group);
  add_choice<strategies::StartFrom>(app, "--start-from", hsadmm.start_from,
                                    {{"z", strategies::StartFrom::kZ}, {"theta", strategies::StartFrom::kTheta}},
                                    "what local steps start from")
      ->group(group);
  add_choice<strategies::AuxTensors>(
      app, "--aux", hsadmm.aux,
      {{"average", strategies::AuxTensors::kAverage}, {"admm", strategies::AuxTensors::kAdmm}},
      "tensors outside every group")
      ->group(group);
  add_choice<strategies::AfterFreeze>(app, "--after-freeze", hsadmm.after_freeze,
                                      {{"nesterov", strategies::AfterFreeze::kNesterov},
                                       {"average", strategies::AfterFreeze::kAverage},
                                       {"admm", strategies::AfterFreeze::kAdmm}},
                                      "exchanges with final masks")
      ->group(group);
  app.add_option("--outer-lr", hsadmm.outer_rate, "of the Nesterov step")->group(group);
  add_automatic_option(app, "--outer-momentum", command.outer_momentum,
                       "of the Nesterov step; auto: 0.8 for H-SADMM, 0.9 elsewhere", group);
  app.add_option("--outer-from", command.outer_from,
                 "Nesterov step from this exchange on; 0 = from the freeze; auto: 1 for hsadmm, hsadmm_flat and "
                 "diloco, else 0")
      ->type_name("INT|auto")
      ->group(group);
  app.add_option("--tolerance", hsadmm.tolerance.relative, "stop when the residuals of the duals are below it; 0 = off")
      ->group(group);
}

void add_strategy_options(CLI::App& app, TrainCommand& command) {
  auto& options = command.options;
  const std::string group = "Strategy";
  app.add_option("--strategy", options.strategy, "what ranks say to each other, and when: docs/strategies.md")
      ->check(one_of(train::strategy_names()))
      ->type_name("")
      ->group(group);
  app.add_option("--preset", command.preset, "paper: the published form and hyper-parameters; other options win")
      ->check(one_of({"", "paper"}))
      ->type_name("")
      ->group(group);
  add_choice<strategies::Payload>(app, "--payload", options.hsadmm.payload,
                                  {{"fp32", strategies::Payload::kFp32},
                                   {"bf16", strategies::Payload::kBf16},
                                   {"fp16", strategies::Payload::kFp16},
                                   {"int8", strategies::Payload::kInt8},
                                   {"int4", strategies::Payload::kInt4},
                                   {"int2", strategies::Payload::kInt2}},
                                  "numbers between nodes; weights are rounded with error feedback")
      ->group(group);
  app.add_option("--local-after", options.local_after, "post-local SGD: gradients in every step for so many exchanges")
      ->group(group);
  app.add_option("--prune-at", options.prune_at, "one_shot: prune after this share of the run")->group(group);
  app.add_option("--density", options.top_k.density, "top_k: share of the gradient's entries sent")->group(group);
  app.add_flag("--no-error-feedback", command.no_error_feedback, "top_k: forget what is not sent, as weak baselines do")
      ->group(group);
  app.add_flag("--dgc", options.top_k.dgc, "top_k: deep gradient compression")->group(group);
  app.add_option("--dgc-warmup-epochs", options.dgc_warmup_epochs, "density falls from 0.25")->group(group);
  app.add_option("--dgc-clip", options.top_k.dgc_options.clip, "largest norm of the gradient; 0 = off")->group(group);
  app.add_option("--powersgd-rank", options.powersgd.rank, "columns of the factors")->group(group);
  app.add_option("--powersgd-start", options.powersgd.start_after, "steps with whole gradients before")->group(group);
}

void add_run_options(CLI::App& app, TrainCommand& command) {
  auto& options = command.options;
  const std::string group = "Run";
  app.add_option("--eval-every", options.eval_every, "exchanges between evaluations; 0 = at the end only")
      ->group(group);
  app.add_option("--run-dir", options.run_dir, "results; default: runs/<dataset>-<model>-<strategy>-<n>")
      ->group(group)
      ->configurable(false);
  app.add_flag("--trace", options.trace, "write trace.json: when every rank did what, for Perfetto")->group(group);
  app.add_option(
         "--checkpoint-every", command.checkpoint_every,
         "exchanges between checkpoints, or a time as 90s, 10min, 1h; auto: 5min; 0 = none, at a signal neither")
      ->group(group)
      ->type_name("INT|TIME|auto");
  app.add_option("--resume", options.resume, "run directory to go on in, with its configuration")
      ->check(not_empty())
      ->group(group)
      ->configurable(false);
  app.add_option("--resume-exchange", options.resume_exchange, "go on from this checkpoint; 0 = the newest")
      ->group(group)
      ->configurable(false);
  app.add_flag("--check", command.check,
               "look whether options, data and network would do, and print the plan; nothing is started")
      ->group(group)
      ->configurable(false);
  app.add_flag("--quiet", options.quiet, "no progress, only results")->group(group);
  add_choice<train::LogForm>(
      app, "--log", options.log,
      {{"plain", train::LogForm::kPlain}, {"timestamps", train::LogForm::kTimestamps}, {"json", train::LogForm::kJson}},
      "form of the progress: lines, lines with the time, or JSON objects")
      ->group(group);
}

/// Nothing for "auto".
template <class Number>
std::optional<Number> number_or_auto(const char* option, const std::string& word, const char* others = "auto") {
  if (word == "auto") return std::nullopt;
  Number number{};
  const bool is_number = CLI::detail::lexical_cast(word, number);
  if (!is_number || (std::is_integral_v<Number> && number < 0)) {
    throw std::invalid_argument(fmt::format("{}: got '{}', wanted a number from 0 on or {}", option, word, others));
  }
  return number;
}

int64_t exchange_or_never(const char* option, const std::string& word) {
  if (word == "never") return strategies::kNever;
  return number_or_auto<int64_t>(option, word, "auto or never").value_or(train::kAutomatic);
}

/// "2" or "2,1".
std::vector<int> numbers_of(const char* option, const std::string& list) {
  std::vector<int> numbers;
  for (const auto& word : CLI::detail::split(list, ',')) {
    const auto number = whole_number(word);
    numbers.push_back(static_cast<int>(std::clamp<int64_t>(number.value_or(0), -1, std::numeric_limits<int>::max())));
    if (!number) {
      throw std::invalid_argument(fmt::format("{}: got '{}', wanted a number, or several such as 2,1", option, list));
    }
  }
  return numbers;
}

void set_keep(TrainOptions& options, const std::string& word) {
  if (word.find('=') != std::string::npos) {
    options.budget = word;
  } else if (!CLI::detail::lexical_cast(word, options.keep)) {
    throw std::invalid_argument(
        fmt::format("--keep: got '{}', wanted a share in (0, 1], macs=M, parameters=P or speed-up=X", word));
  }
}

void set_layer_ratios(TrainOptions& options, const std::string& list) {
  if (list.empty()) return;
  for (const auto& word : CLI::detail::split(list, ',')) {
    const auto ratio = prune::parse_assignment(word);
    if (!ratio) throw std::invalid_argument(fmt::format("--layer-ratio: got '{}', wanted NAME=RATIO", word));
    options.pruning.plan.limits.ratios.push_back({ratio->first, ratio->second});
  }
}

}  // namespace

void add_train_options(CLI::App& sub, TrainCommand& command) {
  add_config_option(sub);
  add_data_options(sub, command.options.data);
  add_network_options(sub, command);
  add_layout_options(sub, command);
  add_sgd_options(sub, command);
  add_pruning_options(sub, command);
  add_sparse_options(sub, command);
  add_cut_options(sub, command);
  add_strategy_options(sub, command);
  add_consensus_options(sub, command);
  add_run_options(sub, command);
}

void take_words(TrainCommand& command) {
  auto& options = command.options;
  options.ranks_per_node = numbers_of("--ranks-per-node", command.ranks_per_node);
  options.prune_end = number_or_auto<int64_t>("--prune-end", command.prune_end).value_or(train::kAutomatic);
  options.freeze_after = exchange_or_never("--freeze-after", command.freeze_after);
  options.round_to = number_or_auto<int64_t>("--round-to", command.round_to).value_or(train::kAutomatic);
  options.outer_from = number_or_auto<int64_t>("--outer-from", command.outer_from);
  options.outer_momentum = number_or_auto<double>("--outer-momentum", command.outer_momentum);
  set_checkpoints(options, command.checkpoint_every);
  options.sparse.strength = number_or_auto<double>("--sparse-reg", command.sparse_reg);
  options.sparse.learning_rate = number_or_auto<double>("--sparse-lr", command.sparse_lr);
  options.finetune.learning_rate = number_or_auto<double>("--finetune-lr", command.finetune_lr);
  if (!command.ignore.empty()) options.pruning.plan.limits.ignore = CLI::detail::split(command.ignore, ',');
  set_layer_ratios(options, command.layer_ratios);
  set_keep(options, command.keep);
  options.shrink = !command.no_shrink;
  options.top_k.error_feedback = !command.no_error_feedback;
}

}  // namespace prunex::tools
