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
  const RunImages images = load_images(whole.data, carried_description(whole.model, whole.weights));
  const data::Dataset& training = images.sets.train;
  const Network network = load_network(whole, training);
  groups_to_prune(network.model.program.graph(), whole);
  ScheduledPruning(whole, run_length(whole, training.size()), network.model);
  std::vector<std::string> lines;
  if (!images.remark.empty()) lines.push_back(images.remark);
  for (const auto& remark : network.remarks) lines.push_back("warning: " + remark);
  return lines;
}

}  // namespace prunex::train
