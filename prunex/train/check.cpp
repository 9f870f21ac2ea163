#include "prunex/train/check.h"

#include "prunex/data/load.h"
#include "prunex/train/mask_plan.h"
#include "prunex/strategies/payload.h"
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
  const auto data = data::load_datasets(whole.data);
  const auto network = load_network(whole, data.train);
  const auto shape = data.train.images.sizes();
  Plan plan{.image = {shape.begin() + 1, shape.end()},
            .classes = data.train.classes,
            .size = size_of(network.program.graph(), network.weights),
            .training_images = data.train.size(),
            .validation_images = data.validation.size(),
            .test_images = data.test.size(),
            .length = run_length(whole, data.train.size()),
            .group_words = group_words(whole),
            .groups = groups_to_prune(network.program.graph(), whole),
            .gradients = averages_gradients(whole.strategy)};
  mask_plan(whole, plan.groups, network.program.graph());
  const ScheduledPruning pruning(whole, plan.length, network);
  if (pruning.has_target()) {
    plan.first_cut = pruning.first();
    plan.last_cut = pruning.last();
  }
  steps_of("--dgc-warmup-epochs", whole.dgc_warmup_epochs, plan.length);
  plan.exchange_bytes = exchange_bytes(whole, network.weights, plan.gradients);
  plan.doubts = check_plan(whole, plan.length, plan.groups);
  return plan;
}

}  // namespace prunex::train
