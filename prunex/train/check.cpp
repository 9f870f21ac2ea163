#include "prunex/train/check.h"

#include "prunex/strategies/payload.h"
#include "prunex/train/images.h"
#include "prunex/train/mask_plan.h"
#include "prunex/train/network.h"
#include "prunex/train/plan_check.h"
#include "prunex/train/scheduled_pruning.h"
#include "prunex/train/strategy_choice.h"

namespace prunex::train {
namespace {

/// Numbers of the whole network that an exchange carries.
strategies::Extent extent_of(const Weights& weights, bool gradients) {
  strategies::Extent extent;
  for (const auto& item : weights.params) {
    (item.value().dim() > 1 ? extent.weights : extent.vectors) += item.value().numel();
  }
  for (const auto& item : weights.buffers) {
    if (!gradients && item.value().is_floating_point()) extent.vectors += item.value().numel();
  }
  return extent;
}

/// As a ring over the nodes sends it, like the exchanges' bound.
int64_t exchange_bytes(const TrainOptions& options, const Weights& weights, bool gradients) {
  const int64_t payload = strategies::Codec(options.hsadmm.payload).bytes(extent_of(weights, gradients));
  return 2 * (options.nodes - 1) * payload / options.nodes * (gradients ? options.local_steps : 1);
}

}  // namespace

Plan check(const TrainOptions& options) {
  validate(options);
  const TrainOptions whole = with_defaults(options);
  const RunImages images = load_images(whole.data, carried_description(whole.model, whole.weights));
  const data::Datasets& data = images.sets;
  const Network network = load_network(whole, data.train);
  const program::Graph& graph = network.model.program.graph();
  const channels::Analysis analysis(network.model.program);
  const auto shape = data.train.images.sizes();
  Plan plan{.image = {shape.begin() + 1, shape.end()},
            .classes = data.train.classes,
            .size = size_of(graph, network.model.weights),
            .training_images = data.train.size(),
            .validation_images = data.validation.size(),
            .test_images = data.test.size(),
            .length = run_length(whole, data.train.size()),
            .group_words = group_words(whole),
            .groups = groups_to_prune(analysis, whole),
            .gradients = averages_gradients(whole.strategy)};
  plan.one_budget = mask_plan(whole, plan.groups, analysis) != nullptr;
  const ScheduledPruning pruning(whole, plan.length, analysis);
  if (pruning.has_target()) {
    plan.first_cut = pruning.first();
    plan.last_cut = pruning.last();
  }
  steps_of("--dgc-warmup-epochs", whole.dgc_warmup_epochs, plan.length);
  plan.exchange_bytes = exchange_bytes(whole, network.model.weights, plan.gradients);
  if (!images.remark.empty()) plan.remarks.push_back(images.remark);
  for (const auto& remark : network.remarks) plan.remarks.push_back("warning: " + remark);
  for (const auto& doubt : check_plan(whole, plan.length, plan.groups)) plan.remarks.push_back("warning: " + doubt);
  return plan;
}

}  // namespace prunex::train
