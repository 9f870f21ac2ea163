#include "tools/prunex/prune_options.h"

#include <fmt/format.h>

#include <optional>
#include <stdexcept>

#include "prunex/prune/plan.h"
#include "tools/prunex/checks.h"
#include "tools/prunex/choices.h"
#include "tools/prunex/data_options.h"

namespace prunex::tools {
namespace {

using prune::ImportanceOptions;
using prune::Pruner;
using prune::Reduction;
using prune::Target;

prune::LayerRatio parse_layer_ratio(const std::string& text) {
  const auto ratio = prune::parse_assignment(text);
  if (ratio) return {ratio->first, ratio->second};
  throw std::invalid_argument(fmt::format("--layer-ratio {}: wanted NAME=R, such as 'layer1.*=0.3'", text));
}

const Words<Reduction>& reductions() {
  static const Words<Reduction> words{{"mean", Reduction::kMean},   {"sum", Reduction::kSum},
                                      {"max", Reduction::kMax},     {"product", Reduction::kProduct},
                                      {"first", Reduction::kFirst}, {"last", Reduction::kLast}};
  return words;
}

void add_target_options(CLI::App& app, PruneCommand& command) {
  const auto add = [&app](const char* name, std::optional<double>& value, const char* description) {
    app.add_option(name, value, description)->type_name("FLOAT")->group("Target: one of");
  };
  add("--ratio", command.ratio, "share of the units of every group to remove");
  add("--macs", command.macs, "multiply-accumulates to be left at most: a share up to 1, or a count");
  add("--parameters", command.parameters, "parameters to be left at most: a share up to 1, or a count");
  add("--speed-up", command.speed_up, "multiply-accumulates before over those after");
  add("--latency", command.latency, "milliseconds at most for a batch, measured here");
  app.add_option("--latency-batch", command.latency_batch, "images in that batch")
      ->check(between(1, 1 << 20))
      ->group("Target: one of");
}

void add_plan_options(CLI::App& app, PruneCommand& command) {
  const auto flag = [&app](const char* name, bool& value, const char* description) {
    app.add_flag(name, value, description)->group("Plan");
  };
  flag("--global", command.global, "rank the units of all groups together");
  flag("--isomorphic", command.isomorphic, "rank the units of groups of one structure together");
  app.add_option("--steps", command.steps, "go to the target in so many steps, scoring anew in each")
      ->check(between(1, 100'000))
      ->group("Plan");
  app.add_option("--round-to", command.limits.round_to, "keep multiples of so many channels; 1 = any number")
      ->check(above_zero())
      ->group("Plan");
  app.add_option("--max-ratio", command.limits.max_ratio, "largest share of a group's units to remove")->group("Plan");
  app.add_option("--layer-ratio", command.layer_ratios, "NAME=R: another ratio for these layers; NAME may hold * and ?")
      ->group("Plan");
  app.add_option("--ignore", command.limits.ignore, "layers whose outputs stay; names may hold * and ?")->group("Plan");
  flag("--heads", command.groups.heads, "attention loses whole heads instead of equal positions of all heads");
  flag("--statistics", command.groups.statistics,
       "remove units that a norm, mean or maximum is taken over, too: it changes what the others become");
  flag("--tp-compat", command.tp_compat, "scores, rounding and counts of Torch-Pruning 1.6.1");
}

void add_importance_options(CLI::App& app, PruneCommand& command) {
  app.add_option("--importance", command.importance, "what ranks the units")
      ->check(one_of(prune::importance_names()))
      ->type_name("")
      ->group("Importance");
  app.add_option("--reduction", command.reduction, "how the layers of a group make one score (the criterion's own)")
      ->check(one_of(prune::names_of(reductions())))
      ->type_name("")
      ->group("Importance");
  app.add_option("--normalizer", command.normalizer, "what makes groups comparable (the criterion's own)")
      ->check(one_of(prune::normalizer_names()))
      ->type_name("")
      ->group("Importance");
  app.add_option("--importance-samples", command.importance_samples, "training images that gradients are taken of")
      ->check(above_zero())
      ->group("Importance");
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
      fmt::format("wanted one of --ratio, --macs, --parameters, --speed-up and --latency, got {}", given.size()));
}

Target target_of(const PruneCommand& command, const Pruner& pruner) {
  const auto [key, value] = target_option(command);
  const std::string name = key == "speed_up" ? "speed-up" : key;
  return prune::target_named("--" + name, name, value, pruner.planner());
}

prune::PlanOptions plan_options(const PruneCommand& command) {
  prune::PlanOptions options{.limits = command.limits, .tp_compat = command.tp_compat};
  options.scope = command.isomorphic ? prune::Scope::kIsomorphic
                  : command.global   ? prune::Scope::kGlobal
                                     : prune::Scope::kLocal;
  if (command.tp_compat && command.ratio && command.limits.max_ratio < 1) {
    throw std::invalid_argument("--max-ratio: --tp-compat has no such limit on a --ratio");
  }
  for (const std::string& text : command.layer_ratios) options.limits.ratios.push_back(parse_layer_ratio(text));
  return options;
}

ImportanceOptions importance_options(const PruneCommand& command) {
  ImportanceOptions options = prune::importance_named(command.importance);
  if (!command.reduction.empty()) {
    options.reduction = prune::meaning_of(command.reduction, reductions(), "--reduction");
  }
  if (!command.normalizer.empty()) options.normalizer = prune::normalizer_named(command.normalizer);
  options.seed = command.model.seed;
  options.tp_compat = command.tp_compat;
  return options;
}

void add_prune_options(CLI::App& app, PruneCommand& command) {
  add_model_options(app, command.model);
  app.add_option("--weights", command.weights, "FILE.safetensors instead of the model's own weights");
  app.add_option("--input", command.model.input, "input of a built-in network, such as 1x3x224x224");
  add_target_options(app, command);
  add_importance_options(app, command);
  add_plan_options(app, command);
  command.data.dataset.clear();
  add_data_options(app, command.data);
  app.add_flag("--estimate-statistics", command.estimate_statistics,
               "write the model with batch-norm statistics estimated anew from training images");
  app.add_option("--seed", command.model.seed, "of built-in weights and random importance")->check(seed_number());
  app.add_option("--threads", command.threads, "threads")->check(between(1, kMostThreads));
  app.add_option("--output", command.output, "new or empty directory for the results")->required();
}

}  // namespace prunex::tools
