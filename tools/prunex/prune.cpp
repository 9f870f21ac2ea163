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
#include "tools/prunex/prune_options.h"
#include "tools/prunex/prune_report.h"

namespace prunex::tools {
namespace {

using prune::ImportanceOptions;
using prune::Pruned;
using prune::Pruner;
using prune::Target;

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

/// To be asked where the network could be cut.
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
  if (has_random_weights(command.model, command.weights)) {
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
