#include "prunex/train/check.h"

#include "prunex/train/images.h"
#include "prunex/train/network.h"
#include "prunex/train/schedule.h"
#include "prunex/train/scheduled_pruning.h"
#include "prunex/train/strategy_choice.h"

namespace prunex::train {

std::vector<std::string> check(const TrainOptions& options) {
  validate(options);
  const TrainOptions whole = with_defaults(options);
  const auto data = load_images(whole.data, carried_description(whole.model, whole.weights)).sets;
  const auto network = load_network(whole, data.train);
  groups_to_prune(network.model.program.graph(), whole);
  ScheduledPruning(whole, run_length(whole, data.train.size()), network.model);
  return network.remarks;
}

}  // namespace prunex::train
