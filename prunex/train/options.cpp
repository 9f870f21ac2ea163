#include "prunex/train/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <tuple>

#include "prunex/admm/penalties.h"
#include "prunex/prune/importance.h"
#include "prunex/prune/words.h"
#include "prunex/train/mask_importance.h"
#include "prunex/train/strategy_choice.h"

namespace prunex::train {
namespace {

constexpr int64_t kMostThreads = 1024;
/// Products of two of them are counted, too.
constexpr int64_t kMostExchanges = 1'000'000'000;

void want(bool condition, const char* option, double got, const char* wanted) {
  if (!condition) throw std::invalid_argument(fmt::format("{}: got {}, wanted {}", option, got, wanted));
}

void at_least(const char* option, double got, double least) {
  want(std::isfinite(got) && got >= least, option, got, fmt::format("{} or more", least).c_str());
}

/// For what is counted, multiplied or allocated.
void between(const char* option, int64_t got, int64_t least, int64_t most) {
  if (got >= least && got <= most) return;
  const std::string wanted = got < least ? fmt::format("{} or more", least) : fmt::format("at most {}", most);
  throw std::invalid_argument(fmt::format("{}: got {}, wanted {}", option, got, wanted));
}

void positive(const char* option, double got) {
  want(std::isfinite(got) && got > 0, option, got, "a number above 0");
}

void validate_shape(const TrainOptions& options) {
  between("--nodes", options.nodes, 1, comm::kMostRanks);
  for (const int ranks : options.ranks_per_node) between("--ranks-per-node", ranks, 1, comm::kMostRanks);
  const auto numbers = options.ranks_per_node.size();
  if (numbers != 1 && numbers != static_cast<size_t>(options.nodes)) {
    throw std::invalid_argument(fmt::format("--ranks-per-node: got {} for {} nodes, wanted one number, or one per node",
                                            fmt::join(options.ranks_per_node, ","), options.nodes));
  }
  if (numbers == 1) comm::expect_countable(options.nodes, options.ranks_per_node[0]);
  at_least("--sites", options.sites, 1);
  if (options.nodes % options.sites != 0) {
    throw std::invalid_argument(
        fmt::format("--sites: got {}, wanted a divisor of the {} nodes", options.sites, options.nodes));
  }
}

void validate_exchange_numbers(const TrainOptions& options) {
  between("--prune-start", options.prune_start, 1, kMostExchanges);
  if (options.prune_end != kAutomatic) between("--prune-end", options.prune_end, options.prune_start, kMostExchanges);
  const bool freezes = options.freeze_after != kAutomatic && options.freeze_after != strategies::kNever;
  if (freezes) between("--freeze-after", options.freeze_after, 0, kMostExchanges);
  between("--freeze-when-stable", options.hsadmm.freeze_when_stable, 0, kMostExchanges);
  between("--outer-from", options.outer_from.value_or(0), 0, kMostExchanges);
  between("--local-after", options.local_after, 0, kMostExchanges);
  if (options.checkpoint_every != kAutomatic)
    between("--checkpoint-every", options.checkpoint_every, 0, kMostExchanges);
  positive("--checkpoint-every", options.checkpoint_seconds);
  between("--resume-exchange", options.resume_exchange, 0, kMostExchanges);
  between("--eval-every", options.eval_every, 0, kMostExchanges);
}

void validate_mask_importance(const TrainOptions& options) {
  const auto& name = options.mask_importance;
  if (name == kNormImportance) return;
  const auto names = mask_importance_names();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    prune::refuse_word(name, names, "--mask-importance");
  }
  if (group_words(options) == "none") {
    throw std::invalid_argument(
        fmt::format("--mask-importance: got {}, but nothing is masked: --strategy {}, --groups {}", name,
                    options.strategy, options.groups));
  }
}

void validate_phases(const TrainOptions& options) {
  const auto& [sparse, finetune, pruning] = std::tie(options.sparse, options.finetune, options.pruning);
  prune::penalty_named(sparse.penalty);
  at_least("--sparse-epochs", sparse.epochs, 0);
  if (sparse.strength) positive("--sparse-reg", *sparse.strength);
  at_least("--sparse-growth", sparse.growth, 0);
  want(sparse.loss_share > 0 && sparse.loss_share < 1, "--sparse-share", sparse.loss_share, "a share in (0, 1)");
  at_least("--sparse-warmup", sparse.warmup_epochs, 0);
  between("--sparse-refresh", sparse.refresh_every, 1, kMostExchanges);
  if (sparse.learning_rate) positive("--sparse-lr", *sparse.learning_rate);
  at_least("--sparse-weight-decay", sparse.weight_decay, 0);
  at_least("--finetune-epochs", finetune.epochs, 0);
  if (finetune.learning_rate) positive("--finetune-lr", *finetune.learning_rate);
  at_least("--prune-below", pruning.below, 0);
  between("--prune-steps", pruning.steps, 1, kMostExchanges);
  between("--prune-every", pruning.every, pruning.below > 0 ? 1 : 0, kMostExchanges);
  between("--importance-samples", pruning.importance_samples, 1, std::numeric_limits<int64_t>::max());
  want(pruning.plan.limits.max_ratio >= 0 && pruning.plan.limits.max_ratio <= 1, "--max-ratio",
       pruning.plan.limits.max_ratio, "a share in [0, 1]");
  prune::importance_named(pruning.importance);
  validate_mask_importance(options);
  if (!pruning.normalizer.empty()) prune::normalizer_named(pruning.normalizer);
  if (sparse.epochs > 0 && sparse.penalty == "none") {
    throw std::invalid_argument("--sparse-epochs: needs --sparse, which says what to add to the gradients");
  }
  if (pruning.below > 0 && !pruning.target.empty()) {
    throw std::invalid_argument("--prune-below: got one besides --prune-to, wanted one of them");
  }
  const bool masks = group_words(options) != "none";
  if (masks && (pruning.any() || sparse.penalty != "none")) {
    throw std::invalid_argument(fmt::format("--groups: got {}, which {} masks while it trains; {} needs --groups none",
                                            group_words(options), options.strategy,
                                            pruning.below > 0 ? "--prune-below"
                                            : pruning.any()   ? "--prune-to"
                                                              : "--sparse"));
  }
}

}  // namespace

void validate(const TrainOptions& given) {
  const TrainOptions options = with_defaults(given);
  validate_shape(options);
  between("--threads", options.threads, 1, kMostThreads);
  positive("--width", options.width);
  between("--exchanges", options.exchanges, 0, kMostExchanges);
  const bool other_phases = options.sparse.epochs > 0 || options.finetune.epochs > 0;
  if (options.exchanges == 0)
    other_phases ? at_least("--epochs", options.epochs, 0) : positive("--epochs", options.epochs);
  between("--local-steps", options.local_steps, 1, kMostExchanges);
  between("--batch-size", options.batch_size, 1, std::numeric_limits<int64_t>::max());
  positive("--lr", options.learning_rate);
  at_least("--warmup-epochs", options.warmup_epochs, 0);
  want(options.momentum >= 0 && options.momentum < 1, "--momentum", options.momentum, "a number in [0, 1)");
  at_least("--weight-decay", options.weight_decay, 0);
  want(options.keep > 0 && options.keep <= 1, "--keep", options.keep, "a share in (0, 1]");
  if (options.round_to != kAutomatic) between("--round-to", options.round_to, 1, prune::kMostMultiple);
  positive("--outer-lr", options.hsadmm.outer_rate);
  const double outer_momentum = options.outer_momentum.value_or(0);
  want(outer_momentum >= 0 && outer_momentum < 1, "--outer-momentum", outer_momentum, "a number in [0, 1)");
  at_least("--tolerance", options.hsadmm.tolerance.relative, 0);
  validate_exchange_numbers(options);
  validate_strategy(options);
  validate_phases(options);
  admm::check(options.hsadmm.penalty);
}

comm::Layout shape_of(const TrainOptions& options) {
  comm::Layout shape = comm::Layout::even(options.nodes, options.ranks_per_node[0]);
  if (options.ranks_per_node.size() > 1) shape.node_sizes = options.ranks_per_node;
  shape.sites = options.sites;
  return shape;
}

}  // namespace prunex::train
