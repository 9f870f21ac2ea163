#include "prunex/train/check.h"

#include "prunex/data/load.h"
#include "prunex/train/mask_plan.h"
#include "prunex/train/network.h"
#include "prunex/train/schedule.h"
#include "prunex/train/scheduled_pruning.h"
#include "prunex/train/strategy_choice.h"

namespace prunex::train {

void check(const TrainOptions& options) {
  validate(options);
  const TrainOptions whole = with_defaults(options);
  const auto data = data::load_datasets(whole.data);
  const auto network = load_network(whole, data.train);
  const auto groups = groups_to_prune(network.program.graph(), whole);
  mask_plan(whole, groups, network.program.graph());
  ScheduledPruning(whole, run_length(whole, data.train.size()), network);
}

}  // namespace prunex::train
