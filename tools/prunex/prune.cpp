// prunex prune
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "prunex/comm/communicator.h"
#include "prunex/data/load.h"
#include "prunex/io/files.h"
#include "prunex/prune/pruner.h"
#include "prunex/say.h"
#include "prunex/text/json.h"
#include "prunex/train/batch_statistics.h"
#include "prunex/train/device.h"
#include "prunex/train/evaluate.h"
#include "prunex/train/images/images.h"
#include "prunex/train/network.h"
#include "prunex/train/options.h"
#include "prunex/train/product.h"
#include "prunex/train/pruning/by_importance.h"
#include "prunex/train/pruning/evidence.h"
#include "prunex/train/remarks.h"
#include "tools/prunex/commands.h"
#include "tools/prunex/prune_report.h"

namespace prunex::tools {
namespace {

using prune::ImportanceOptions;
using prune::Pruner;
using prune::Reduction;
using prune::Target;
using text::flag;
using text::number;

struct PruneCommand {
  ModelChoice model;
  std::string weights;
  std::optional<double> ratio, macs, parameters, speed_up, latency;
  int64_t latency_batch = 1;
  std::string importance = "l2";
  std::optional<prune::Reduction> reduction;
  std::string normalizer;
  bool global = false, isomorphic = false, tp_compat = false, estimate_statistics = false;
  int64_t steps = 1;
  prune::LimitOptions limits;
  channels::GroupOptions groups;
  std::vector<std::string> layer_ratios;
  data::DataOptions data;
  int64_t importance_samples = 256;
  int threads = 1;
  std::string device = "cpu";
  bool quiet = false;
  std::string output;
};

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

/// The one target that was given; none or several are a std::invalid_argument.
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

/// "`macs` 0.5", for messages.
std::string named_target(const PruneCommand& command) {
  const auto [name, value] = target_option(command);
  return fmt::format("`{}` {}", name, value);
}

Target target_of(const PruneCommand& command, const Pruner& pruner) {
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

ImportanceOptions importance_options(const PruneCommand& command) {
  ImportanceOptions options = prune::importance_named(command.importance);
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
               const bool own_weights = command.weights.empty() && !command.model.model.ends_with(".pt2");
               const bool random = prune::importance_named(command.importance).criterion == prune::Criterion::kRandom;
               return own_weights || random || !command.data.dataset.empty() ? "" : "nothing is drawn";
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

using prune::Pruned;

std::optional<data::Datasets> load_data(const PruneCommand& command, const std::optional<train::Carried>& carried,
                                        const program::Graph& graph) {
  if (command.data.dataset.empty()) return std::nullopt;
  data::DataOptions data = command.data;
  train::complete_sizes(data, graph, carried);
  const train::RunImages images = train::load_images(data, carried);
  train::check_fits(graph, images.sets.test, "`model` " + command.model.model);
  for (const auto& remark : images.remarks) {
    if (!command.quiet) say(fmt::format("prunex: {}\n", remark));
  }
  return images.sets;
}

/// What the product says of its images: what the network did, or the images that it was pruned by.
std::optional<data::Description> description_of(const std::optional<train::Carried>& carried,
                                                const std::optional<data::Datasets>& data) {
  if (!data) return carried ? std::optional(carried->description) : std::nullopt;
  data::Description description = data::describe(data->train);
  if (carried && !carried->description.classes.empty()) description.classes = carried->description.classes;
  return description;
}

void prune_by(const ImportanceOptions& importance, const PruneCommand& command, Pruner& pruner,
              const std::optional<data::Datasets>& data, const Target& target) {
  const auto world = comm::make_solo("world");
  const auto images = [&] { return train::evidence_images(data->train, command.importance_samples); };
  train::prune_by_importance(pruner, importance, target, command.steps, images, *world);
}

void prune_to_target(const ImportanceOptions& importance, const PruneCommand& command, Pruner& pruner,
                     const std::optional<data::Datasets>& data) {
  try {
    prune_by(importance, command, pruner, data, target_of(command, pruner));
  } catch (const prune::OutOfReach& error) {
    throw std::invalid_argument(fmt::format("{}: {}", named_target(command), error.what()));
  }
}

/// Of a network from which something could be.
void warn_of_nothing(const PruneCommand& command, const Pruned& pruned) {
  if (command.quiet || command.latency || !pruned.cut.empty()) return;
  say(text::with_flags(fmt::format("prunex: warning: {}: nothing was cut\n", named_target(command))));
}

/// Bisects multiply-accumulates for the largest network that is fast enough, scored anew from the whole one each time.
/// As exact as the measurement.
Latency prune_to_latency(const ImportanceOptions& importance, const PruneCommand& command, Pruner& pruner,
                         const std::optional<data::Datasets>& data) {
  constexpr int kTries = 10;
  const double most = *command.latency;
  const auto milliseconds = [&](const Pruner& pruned) {
    const program::Model model = pruned.result().model;
    return train::milliseconds_per_batch(model, command.latency_batch);
  };
  const prune::Cost& cost = pruner.planner().cost();
  Latency latency{command.latency_batch, milliseconds(pruner), 0};
  double fastest = latency.milliseconds_after = latency.milliseconds_before;
  if (fastest <= most) {
    if (!command.quiet) {
      say(text::with_flags(fmt::format(
          "prunex: warning: `latency` {}: the network takes {:.3g} ms: nothing has to go\n", most, fastest)));
    }
    return latency;
  }
  std::optional<Pruner> best;
  int64_t too_few = 0, too_many = cost.macs(prune::all_units(pruner.planner().groups()));
  for (int i = 0; i < kTries; ++i) {
    const int64_t count = too_few + (too_many - too_few) / 2;
    Pruner tried = pruner;
    try {
      prune_by(importance, command, tried, data, {.kind = Target::Kind::kMacs, .count = count});
    } catch (const prune::OutOfReach&) {
      too_few = count;
      continue;
    }
    const double took = milliseconds(tried);
    fastest = std::min(fastest, took);
    (took <= most ? too_few : too_many) = count;
    if (took > most) continue;
    best.emplace(std::move(tried));
    latency.milliseconds_after = took;
  }
  if (!best)
    throw std::invalid_argument(fmt::format("`latency` {}: the fastest network tried took {:.3g} ms", most, fastest));
  pruner = std::move(*best);
  return latency;
}

Evaluations evaluate(const program::Model& whole, Pruned& pruned, const data::Datasets& data,
                     const PruneCommand& command) {
  const auto world = comm::make_solo("world");
  const auto& [program, weights] = pruned.model;
  Evaluations found;
  found.before = train::evaluate(whole.program, whole.weights, data.test);
  found.after = train::evaluate(program, weights, data.test);
  if (train::has_statistics(program.graph())) {
    const Weights estimated = train::with_estimated_statistics(
        program, weights, train::calibration_images(data.train, command.model.seed), *world);
    found.after_statistics = train::evaluate(program, estimated, data.test);
    if (command.estimate_statistics) pruned.model.weights = estimated;
  }
  found.milliseconds_before =
      train::milliseconds_per_batch(whole.program, whole.weights, data.test, train::kTimedImages);
  found.milliseconds_after = train::milliseconds_per_batch(program, weights, data.test, train::kTimedImages);
  return found;
}

void write(const PruneCommand& command, const Pruned& pruned, const std::optional<data::Description>& description,
           const nlohmann::ordered_json& report) {
  io::AtomicDirectory directory(command.output);
  try {
    train::write_product(directory.path(), pruned.model, description);
    train::write_structure(directory.path(), {command.model.model, train::input_shape(pruned.model.program.graph()),
                                              pruned.cut, command.groups});
    io::write_file_atomically(directory.path() + "/report.json", text::json_text(report, 1) + "\n");
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(directory.by_its_name(error.what()));
  }
  directory.commit();
}

PruneSettings settings_of(const PruneCommand& command, const std::optional<Latency>& latency) {
  const auto [target, value] = target_option(command);
  return {.model = command.model.model,
          .importance = command.importance,
          .scope = command.isomorphic ? "isomorphic"
                   : command.global   ? "global"
                                      : "local",
          .target = target,
          .device = command.device,
          .value = value,
          .steps = command.steps,
          .tp_compat = command.tp_compat,
          .latency = latency};
}

int run_prune(const PruneCommand& command) {
  at::set_num_threads(command.threads);
  const auto device = chosen_device(command.device);
  target_option(command);
  const ImportanceOptions importance = importance_options(command);
  io::check_new_or_empty(command.output, "`output`");
  io::AtomicDirectory{command.output};  // fails before the work
  if (command.estimate_statistics && command.data.dataset.empty()) {
    throw std::invalid_argument("`estimate_statistics`: needs images, which `dataset` names");
  }
  // images come in batches of any size
  const bool runs = !command.data.dataset.empty() || command.latency;
  program::Model model = load_model(command.model, runs ? program::Batch::kDynamic : program::Batch::kAny);
  if (!command.weights.empty()) train::load_weights(model.weights, command.weights, model.program.graph().aliases);
  if (command.estimate_statistics && !train::has_statistics(model.program.graph())) {
    throw std::invalid_argument(fmt::format("`estimate_statistics`: {} has no batch norm", command.model.model));
  }
  model = train::on_device(std::move(model), device);
  if (command.latency) model.program.graph().expect_batch("`latency_batch`", command.latency_batch);
  const auto carried =
      train::carried_description(command.model.model, command.weights, command.model.max_model_size << 20);
  const auto data = load_data(command, carried, model.program.graph());
  if (prune::needs_evidence(importance.criterion) && !data) {
    throw std::invalid_argument(
        fmt::format("`importance` {}: reads gradients or activations, which need `dataset`", command.importance));
  }
  const prune::PlanOptions options = plan_options(command);
  const channels::Analysis analysis(model.program, command.groups);
  if (command.groups.heads) train::expect_heads(analysis, "`model` " + command.model.model);
  if (command.groups.statistics) train::expect_statistics(analysis, "`model` " + command.model.model);
  const std::string why = train::nothing_to_cut(analysis, "`model` " + command.model.model);
  if (!why.empty() && !command.quiet) say(text::with_flags(fmt::format("prunex: warning: {}\n", why)));
  Pruner pruner(model, analysis, options);
  std::optional<Latency> latency;
  if (command.latency) {
    latency = prune_to_latency(importance, command, pruner, data);
  } else {
    prune_to_target(importance, command, pruner, data);
  }
  Pruned pruned = pruner.result();
  if (why.empty()) warn_of_nothing(command, pruned);
  std::optional<Evaluations> found;
  if (data) found = evaluate(model, pruned, *data, command);
  write(command, pruned, description_of(carried, data), report_json(settings_of(command, latency), pruned, found));
  print_report(pruned, found);
  if (latency) {
    fmt::print("{:<12} {:.3g} ms -> {:.3g} ms, a batch of {}\n", "latency", latency->milliseconds_before,
               latency->milliseconds_after, latency->images);
  }
  if (command.weights.empty() && !command.model.model.ends_with(".pt2")) {
    fmt::print("{:<12} random: --weights names trained ones\n", "weights");
  }
  constexpr double kChance = 1.02;
  const bool unrounded = command.device == "cpu" && command.limits.round_to < 8;
  if (found && unrounded && found->milliseconds_after > kChance * found->milliseconds_before) {
    fmt::print("{:<12} not faster here, where 8 or 16 channels are computed at once: --round-to 8\n", "");
  }
  return 0;
}

}  // namespace

void add_prune(CLI::App& app, int& status) {
  auto command = std::make_shared<PruneCommand>();
  add_command(app,
              {.name = "prune",
               .help = "remove channels of a network until it meets a target",
               .options = describe(*command),
               .run = [command] { return run_prune(*command); }},
              status);
}

}  // namespace prunex::tools
