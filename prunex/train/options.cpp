#include "prunex/train/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include <algorithm>
#include <functional>

#include "prunex/admm/residuals.h"
#include "prunex/train/elastic/elastic.h"
#include "prunex/train/optimizer_choice.h"
#include "prunex/train/strategy_choice.h"
#include "prunex/train/teacher.h"

namespace prunex::train {
namespace {

using text::refuse_if;

void validate_shape(const TrainOptions& options) {
  const auto numbers = options.ranks_per_node.size();
  refuse_if(numbers != 1 && numbers != static_cast<size_t>(options.nodes),
            fmt::format("`ranks_per_node`: got {} for {} nodes, wanted one number, or one per node",
                        fmt::join(options.ranks_per_node, ","), options.nodes));
  if (numbers == 1) comm::expect_countable(options.nodes, options.ranks_per_node[0]);
  refuse_if(options.nodes % options.sites != 0,
            fmt::format("`sites`: got {}, wanted a divisor of the {} nodes", options.sites, options.nodes));
}

/// Lengths and cuts of the parts of a run.
void validate_phases(const TrainOptions& options) {
  const auto& sparse = options.sparse;
  const auto& pruning = options.pruning;
  const bool other_phases = sparse.epochs > 0 || options.finetune.epochs > 0;
  refuse_if(options.exchanges == 0 && options.epochs == 0 && !other_phases, "`epochs`: got 0, wanted a number above 0");
  const bool trains = options.exchanges > 0 || options.epochs > 0;
  const auto refuse_without_training = [&](bool asked, const char* option) {
    refuse_if(asked && !trains, fmt::format("{}: is of the training before the other phases, which has no steps: "
                                            "`epochs` is 0",
                                            option));
  };
  refuse_without_training(options.warmup_epochs > 0, "`warmup_epochs`");
  refuse_without_training(options.warmup_steps > 0, "`warmup_steps`");
  refuse_without_training(options.schedule == LearningRateSchedule::kMilestones, "`lr_schedule`");
  refuse_without_training(sparse.penalty != "none" && sparse.epochs == 0, "`sparse` without `sparse_epochs`");
  const int64_t prune_start = options.prune_start == kAutomatic ? kFirstPruning : options.prune_start;
  const bool ends_early = options.prune_end != kAutomatic && options.prune_end < prune_start;
  refuse_if(ends_early, fmt::format("`prune_end`: got {}, wanted {} or more", options.prune_end, prune_start));
  refuse_if(pruning.below > 0 && pruning.every == 0, "`prune_every`: got 0, wanted 1 or more");
  refuse_if(sparse.epochs > 0 && sparse.penalty == "none",
            "`sparse_epochs`: needs `sparse`, which says what to add to the gradients");
  refuse_if(pruning.below > 0 && !pruning.target.empty(),
            "`prune_below`: got one besides `prune_to`, wanted one of them");
  const bool masks = group_words(options) != "none";
  refuse_if(masks && (pruning.any() || sparse.penalty != "none"),
            fmt::format("`groups`: got {}, which {} masks while it trains; {} needs `groups` none",
                        group_words(options), options.strategy,
                        pruning.below > 0 ? "`prune_below`"
                        : pruning.any()   ? "`prune_to`"
                                          : "`sparse`"));
}

void validate_recipe(const TrainOptions& options) {
  const auto& milestones = options.milestones;
  refuse_if(options.optimizer == Optimizer::kNesterov && optimizer_of(options).momentum == 0,
            "`momentum`: got 0, nesterov needs a number above 0");
  refuse_if(options.schedule == LearningRateSchedule::kMilestones && milestones.empty(),
            "`lr_milestones`: got none, wanted epochs such as 30,60,80 for `lr_schedule` milestones");
  refuse_if(std::adjacent_find(milestones.begin(), milestones.end(), std::greater_equal<>()) != milestones.end(),
            fmt::format("`lr_milestones`: got {}, wanted ascending epochs", fmt::join(milestones, ",")));
  refuse_if(options.warmup_steps > 0 && options.warmup_epochs > 0,
            "`warmup_steps`: got some besides `warmup_epochs`, wanted one of them");
  const bool whole = options.teacher == kWholeTeacher;
  refuse_if(whole && options.pruning.target.empty(),
            "`teacher`: got whole, which teaches from the first cut of `prune_to` on; wanted FILE.pt2");
  refuse_if(whole && options.elastic, "`teacher`: got whole, which `elastic` cannot hand on; wanted FILE.pt2");
}

}  // namespace

void validate(const TrainOptions& given) {
  TrainOptions options = with_defaults(given);
  describe(options).check();
  validate_shape(options);
  refuse_if(options.precision == Precision::kTf32 && options.ranks.device == "cpu",
            "`precision`: got tf32, which GPUs have, for `device` cpu; wanted auto, fp32 or bf16");
  validate_strategy(options);
  validate_elastic(options);
  validate_phases(options);
  validate_recipe(options);
  admm::check(options.consensus.penalty);
}

comm::Layout shape_of(const TrainOptions& options) {
  comm::Layout shape = comm::Layout::even(options.nodes, options.ranks_per_node[0]);
  if (options.ranks_per_node.size() > 1) shape.node_sizes = options.ranks_per_node;
  shape.sites = options.sites;
  return shape;
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(std::llround(seconds * 1000));
}

}  // namespace prunex::train
