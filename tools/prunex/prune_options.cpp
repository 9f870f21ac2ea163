#include "tools/prunex/prune_options.h"

#include <fmt/format.h>

#include <stdexcept>

namespace prunex::tools {
namespace {

using prune::Reduction;
using text::flag;
using text::number;

prune::LayerRatio parse_layer_ratio(const std::string& text) {
  const auto ratio = text::assignment_in(text);
  if (ratio) return {ratio->first, ratio->second};
  throw std::invalid_argument(fmt::format("`layer_ratio`: got {}, wanted NAME=R, such as 'layer1.*=0.3'", text));
}

void describe_target(text::OptionList& list, PruneCommand& command) {
  list.topic("Target: one of");
  list.add("ratio", number(command.ratio), "share of the units of every group to remove");
  list.add("macs", number(command.macs), "multiply-accumulates to be left at most: a share up to 1, or a count");
  list.add("parameters", number(command.parameters), "parameters to be left at most: a share up to 1, or a count");
  list.add("speed-up", number(command.speed_up), "multiply-accumulates before over those after");
  list.add("latency", number(command.latency, text::above_zero()), "milliseconds at most for a batch, measured here");
  list.add("latency-batch", number(command.latency_batch, text::between(1, 1 << 20)), "images in that batch",
           {{"`latency`", [&command] { return command.latency ? "" : "nothing is timed without `latency`"; }}});
}

void describe_plan(text::OptionList& list, PruneCommand& command) {
  auto& limits = command.limits;
  list.topic("Plan");
  list.add("global", flag(command.global), "rank the units of all groups together");
  list.add("isomorphic", flag(command.isomorphic), "rank the units of groups of one structure together");
  list.add("steps", number(command.steps, text::between(1, 100'000)),
           "go to the target in so many steps, scoring anew in each");
  list.add("round-to", number(limits.round_to, text::between(1, prune::kMostMultiple)),
           "keep multiples of so many channels; 1 = any number");
  list.add("max-ratio", number(limits.max_ratio, {.least = 0, .most = 1, .wanted = "a share in [0, 1]"}),
           "largest share of a group's units to remove");
  list.add("layer-ratio", text::text_lists(command.layer_ratios),
           "NAME=R: another ratio for these layers; NAME may hold *, ? and [ab]");
  list.add("ignore", text::text_lists(limits.ignore), "layers whose outputs stay; names may hold *, ? and [ab]");
  list.add("heads", flag(command.groups.heads), "attention loses whole heads instead of equal positions of all heads");
  list.add("statistics", flag(command.groups.statistics),
           "remove units that a norm, mean or maximum is taken over, too: it changes what the others become");
  list.add("tp-compat", flag(command.tp_compat), "scores, rounding and counts of Torch-Pruning 1.6.1");
}

text::Condition scores_layers(const PruneCommand& command) {
  return {"an importance but random", [&command] {
            return command.importance == "random" ? "random scores are of whole groups, all on one scale" : "";
          }};
}

void describe_importance(text::OptionList& list, PruneCommand& command) {
  const std::vector<std::pair<std::string, std::optional<Reduction>>> reductions(prune::reductions().begin(),
                                                                                 prune::reductions().end());
  list.topic("Importance");
  list.add("importance", text::one_of(command.importance, prune::importance_names()), "what ranks the units");
  list.add("reduction", text::choice(command.reduction, reductions),
           "how the layers of a group make one score (the criterion's own)", {scores_layers(command)});
  auto normalizers = prune::normalizer_names();
  normalizers.insert(normalizers.begin(), "");
  list.add(
      "normalizer", text::one_of(command.normalizer, normalizers), "what makes groups comparable (the criterion's own)",
      {scores_layers(command), {"`global` or `isomorphic`", [&command] {
                                  const bool compares = command.global || command.isomorphic;
                                  return compares ? "" : "without `global` or `isomorphic` groups are not compared";
                                }}});
  list.add("importance-samples", number(command.importance_samples, text::at_least(1)),
           "training images that gradients and activations are of",
           {{"an importance that looks at images", [&command] {
               const auto criterion = prune::importance_named(command.importance).criterion;
               return prune::needs_evidence(criterion) ? "" : command.importance + " looks at no images";
             }}});
}

}  // namespace

std::pair<std::string, double> target_option(const PruneCommand& command) {
  std::vector<std::pair<std::string, double>> given;
  const auto add = [&](const char* name, const std::optional<double>& value) {
    if (value) given.emplace_back(name, *value);
  };
  add("ratio", command.ratio);
  add("macs", command.macs);
  add("parameters", command.parameters);
  add("speed_up", command.speed_up);
  add("latency", command.latency);
  if (given.size() == 1) return given[0];
  throw std::invalid_argument(
      fmt::format("wanted one of `ratio`, `macs`, `parameters`, `speed_up` and `latency`, got {}", given.size()));
}

std::string named_target(const PruneCommand& command) {
  const auto [name, value] = target_option(command);
  return fmt::format("`{}` {}", name, value);
}

prune::Target target_of(const PruneCommand& command, const prune::Pruner& pruner) {
  const auto [key, value] = target_option(command);
  const std::string name = key == "speed_up" ? "speed-up" : key;
  return prune::target_named(text::field_name(name), name, value, pruner.planner());
}

prune::PlanOptions plan_options(const PruneCommand& command) {
  prune::PlanOptions options{.limits = command.limits, .tp_compat = command.tp_compat};
  if (command.global && command.isomorphic)
    throw std::invalid_argument("`global` and `isomorphic`: wanted one of them");
  options.scope = command.isomorphic ? prune::Scope::kIsomorphic
                  : command.global   ? prune::Scope::kGlobal
                                     : prune::Scope::kLocal;
  if (command.tp_compat && command.ratio && command.limits.max_ratio < 1) {
    throw std::invalid_argument("`max_ratio`: `tp_compat` has no such limit on a `ratio`");
  }
  for (const auto& text : command.layer_ratios) options.limits.ratios.push_back(parse_layer_ratio(text));
  return options;
}

prune::ImportanceOptions importance_options(const PruneCommand& command) {
  prune::ImportanceOptions options = prune::importance_named(command.importance);
  if (command.reduction) options.reduction = *command.reduction;
  if (!command.normalizer.empty()) options.normalizer = prune::normalizer_named(command.normalizer);
  prune::check(options);
  options.seed = command.model.seed;
  options.tp_compat = command.tp_compat;
  return options;
}

text::OptionList describe(PruneCommand& command) {
  text::OptionList list;
  describe_model(list, command.model);
  list.add("weights", text::text_value(command.weights), "FILE.safetensors instead of the model's own weights");
  describe_input(list, command.model);
  list.add("seed", number(command.model.seed), "of built-in weights, random importance and the images that are drawn",
           {{"", [&command] {
               const bool weights = has_random_weights(command.model, command.weights);
               const bool importance =
                   prune::importance_named(command.importance).criterion == prune::Criterion::kRandom;
               return weights || importance || !command.data.dataset.empty() ? "" : "nothing is drawn";
             }}});
  list.add("estimate-statistics", flag(command.estimate_statistics),
           "write the model with batch-norm statistics estimated anew from training images");
  list.add("threads", number(command.threads, text::between(1, train::kMostThreads)), "threads");
  describe_device(list, command.device);
  list.add("output", text::text_value(command.output), "new or empty directory for the results").must();
  describe_quiet(list, command.quiet);
  describe_target(list, command);
  describe_importance(list, command);
  describe_plan(list, command);
  command.data.dataset.clear();
  train::describe_data(list, command.data, train::ImageUse::kPruning);
  train::describe_augmentation(list, command.data);
  return list;
}

}  // namespace prunex::tools
