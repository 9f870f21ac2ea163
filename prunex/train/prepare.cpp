#include "prunex/train/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "prunex/comm/cost_model.h"
#include "prunex/prune/importance.h"
#include "prunex/strategies/exchange/exchange_buffer.h"
#include "prunex/strategies/exchange/payload.h"
#include "prunex/train/batch_statistics.h"
#include "prunex/train/images/division.h"
#include "prunex/train/pruning/evidence.h"
#include "prunex/train/pruning/mask_choice.h"
#include "prunex/train/strategy_choice.h"

namespace prunex::train {
namespace {

/// Numbers of the whole network that an exchange carries: statistics, too, unless it carries gradients or is rounded.
strategies::EntryCounts counts_of(const Weights& weights, bool params_alone) {
  strategies::EntryCounts counts;
  for (const auto& item : weights.params) {
    (item.value().dim() > 1 ? counts.weights : counts.vectors) += item.value().numel();
  }
  if (!params_alone) counts.vectors += strategies::averaged_numbers(weights);
  return counts;
}

/// Of one exchange, or of one step of gradients, of the whole network: the formulas of docs/strategies.md, "Bytes".
double node_bytes_of(const TrainOptions& options, const Weights& weights, bool gradients) {
  const comm::Layout layout = shape_of(options);
  const comm::ClusterShape shape{layout.nodes(), layout.ranks_here(), layout.sites};
  const strategies::Codec codec(options.exchange.payload);
  const auto reduced = [&](comm::Form form, int64_t bytes) {
    return comm::node_bytes(form, static_cast<double>(bytes), shape);
  };
  if (options.strategy == "top_k") {
    const strategies::EntryCounts counts = counts_of(weights, true);
    const double entries = options.top_k.density * static_cast<double>(counts.weights);
    return comm::gathered_node_bytes(8 * entries, shape) + reduced(comm::Form::kSharded, 4 * counts.vectors);
  }
  int64_t payload = codec.bytes(counts_of(weights, gradients || codec.payload() != strategies::Payload::kFp32));
  if (facts_of(options.strategy).controls) payload += codec.bytes(counts_of(weights, true));  // as many as gradients
  const bool is_flat = options.exchange.form == strategies::ExchangeForm::kFlat;
  if (!facts_of(options.strategy).one_node) {
    return reduced(is_flat ? comm::Form::kFlat : comm::Form::kSharded, payload);
  }
  // Every rank sends what a node would, and with duals the node's candidate, too.
  return reduced(comm::Form::kSharded, payload) * layout.ranks_here() * (pulls(options) ? 1.5 : 1);
}

int64_t exchange_bytes(const TrainOptions& options, const Weights& weights, bool gradients) {
  const double bytes = node_bytes_of(options, weights, gradients);
  return std::llround(bytes * static_cast<double>(gradients ? options.local_steps : 1));
}

NodeFiles load(const TrainOptions& options, const std::optional<Carried>& carried, comm::Hierarchy* ranks) {
  if (has_files_by_node(options.data)) return load_by_node(options, carried, ranks);
  return {load_images(options.data, carried)};
}

/// Importances are estimated by all ranks together: each must have its part of as many images, and one at least.
/// `fewest`: of a node's.
void expect_samples_of_each(int64_t fewest, bool by_node, const TrainOptions& options) {
  const auto& pruning = options.pruning;
  if (pruning.target.empty() || !prune::needs_evidence(prune::importance_named(pruning.importance).criterion)) return;
  const int64_t wanted = pruning.importance_samples;
  if (by_node && fewest < wanted) {
    throw std::invalid_argument(
        fmt::format("`importance_samples`: got {}, wanted at most {}: a node has no more images", wanted, fewest));
  }
  expect_image_for_each(shape_of(options).world_size(), std::min(wanted, fewest));
}

}  // namespace

Prepared prepare(const TrainOptions& options, comm::Hierarchy* ranks) {
  validate(options);
  const TrainOptions whole = with_defaults(options);
  auto [images, files] =
      load(whole, carried_description(whole.model, whole.weights, whole.max_model_size << 20), ranks);
  const data::Dataset& training = images.sets.train;
  const bool by_node = !files.class_counts.empty();
  const int64_t total = by_node ? files.total() : training.size();
  Network network = load_network(whole, training);
  auto teacher = read_teacher(whole, training, network.model.program.graph());
  Prepared run{.images = images,
               .training_images = total,
               .network = std::move(network),
               .teacher = std::move(teacher),
               .length = run_length(whole, total),
               .calibration = calibration_images(training, whole.seed),
               .division = by_node ? std::optional(files) : divide(whole, training)};
  expect_samples_of_each(by_node ? files.fewest() : training.size(), by_node, whole);
  if (by_node) {
    run.calibration = data::take_first(run.calibration, std::min(run.calibration.size(), files.fewest()), "");
  }
  const program::Model& model = run.network.model;
  const channels::Analysis& analysis = run.network.analysis;
  PruningPlan& pruning = run.pruning;
  pruning.masked = masked_units(whole, groups_to_prune(analysis, whole), model, analysis, training, run.calibration);
  if (whole.sparse.penalty != "none") pruning.sparse.emplace(whole, run.length, analysis, training.classes);
  if (whole.pruning.any()) pruning.schedule.emplace(whole, run.length, analysis);
  if (run.division) run.remarks.push_back(remark_on(*run.division));
  run.remarks.insert(run.remarks.end(), images.remarks.begin(), images.remarks.end());
  for (const auto& remark : run.network.remarks) run.remarks.push_back("warning: " + remark);
  for (const auto& doubt : check_plan(whole, run.length, pruning.masked.groups))
    run.remarks.push_back("warning: " + doubt);
  return run;
}

RunPreview check(const TrainOptions& options) {
  Prepared run = prepare(options);
  const TrainOptions whole = with_defaults(options);
  const program::Model& model = run.network.model;
  const data::Datasets& data = run.images.sets;
  RunPreview plan{.image = data.train.image_shape(),
                  .classes = data.train.classes,
                  .size = size_of(model.program.graph(), model.weights),
                  .training_images = run.training_images,
                  .validation_images = data.validation.size() * (has_files_by_node(whole.data) ? whole.nodes : 1),
                  .test_images = data.test.size(),
                  .length = run.length,
                  .group_words = group_words(whole),
                  .groups = std::move(run.pruning.masked.groups),
                  .one_budget = run.pruning.masked.select != nullptr,
                  .gradients = facts_of(whole.strategy).gradients,
                  .remarks = std::move(run.remarks)};
  if (const auto& schedule = run.pruning.schedule; schedule && schedule->has_target()) {
    plan.first_cut = schedule->first();
    plan.last_cut = schedule->last();
  }
  plan.exchange_bytes = exchange_bytes(whole, model.weights, plan.gradients);
  return plan;
}

}  // namespace prunex::train
