#include "prunex/train/check.h"

#include "prunex/data/load.h"
#include "prunex/train/network.h"
#include "prunex/train/plan_check.h"
#include "prunex/train/schedule.h"
#include "prunex/train/scheduled_pruning.h"
#include "prunex/train/strategy_choice.h"

namespace prunex::train {

std::vector<std::string> check(const TrainOptions& options) {
  validate(options);
  const TrainOptions whole = with_defaults(options);
  const auto data = data::load_datasets(whole.data);
  const auto network = load_network(whole, data.train);
  const auto groups = groups_to_prune(network.program.graph(), whole);
  const RunLength length = run_length(whole, data.train.size());
  ScheduledPruning(whole, length, network);
  return check_plan(whole, length, groups);
}

}  // namespace prunex::train
