#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "prunex/sparsity/projection.h"
#include "prunex/train/prepare.h"
#include "prunex/train/strategy_choice.h"

namespace prunex::train {
namespace {

constexpr int64_t kFewest = 4;   // exchanges with which the automatic plan has a fifth of the run after the cut
constexpr int64_t kAdvised = 8;  // exchanges
constexpr int64_t kShare = 5;    // one of so many exchanges should follow the cut

std::string count_of(int64_t exchanges) {
  return fmt::format("{} exchange{}", exchanges, exchanges == 1 ? "" : "s");
}

void refuse_later_than(int64_t last, const char* option, int64_t got, const char* others = "") {
  if (got <= last) return;
  throw std::invalid_argument(
      fmt::format("{}: got {}, wanted at most {}, the last exchange of this run{}", option, got, last, others));
}

void refuse_warmup_without_end(const char* option, double epochs, int64_t steps, const RunLength& length) {
  const int64_t warmup = steps_of(option, epochs, length);
  if (warmup < steps || warmup == 0) return;
  throw std::invalid_argument(fmt::format("{}: got {} epochs, {} steps, and the run has {} for it: wanted fewer",
                                          option, epochs, warmup, steps));
}

/// Whatever is pruned.
void refuse_what_never_begins(const TrainOptions& options, const RunLength& length) {
  const int64_t last = length.exchanges;
  if (options.local_after > 0 && options.local_after >= last) {
    throw std::invalid_argument(
        fmt::format("`local_after`: got {}, wanted less than {}, the last exchange of this run: {} would never begin",
                    options.local_after, last, options.strategy));
  }
  if (options.outer_from) refuse_later_than(last, "`outer_from`", *options.outer_from);
  if (options.pruning.below > 0) refuse_later_than(last, "`prune_every`", options.pruning.every);
  refuse_warmup_without_end("`dgc_warmup_epochs`", options.dgc_warmup_epochs, length.steps, length);
  for (const Phase& phase : length.phases) {
    if (phase.name != std::string_view(options.sparse.epochs > 0 ? "sparse" : "train")) continue;
    refuse_warmup_without_end("`sparse_warmup`", options.sparse.warmup_epochs, phase.steps, length);
  }
  if (options.strategy != "powersgd" || options.powersgd.start_after < length.steps) return;
  throw std::invalid_argument(fmt::format("`powersgd_start`: got {}, wanted less than {}, the steps of this run",
                                          options.powersgd.start_after, length.steps));
}

/// Masks prune from the first exchange of weights on.
void refuse_earlier_than_weights(const TrainOptions& options, const RunLength& length) {
  const auto refuse = [&](const char* option, int64_t got, int64_t first) {
    if (got == kAutomatic || got >= first) return;
    throw std::invalid_argument(
        fmt::format("{}: got {}, wanted {} or more beside `local_after` {}: weights are not "
                    "exchanged, and nothing is pruned, before",
                    option, got, first, options.local_after));
  };
  refuse("`prune_start`", options.prune_start, options.local_after + 1);
  refuse("`prune_end`", options.prune_end, length.prune_start);
  refuse("`freeze_after`", options.freeze_after, length.prune_start);
}

void refuse_what_never_comes(const TrainOptions& options, const RunLength& length) {
  const int64_t last = length.exchanges;
  if (options.strategy == "one_shot") {
    const int64_t open = last_open_exchange(options, length);
    if (open >= options.local_after) return;
    throw std::invalid_argument(
        fmt::format("`prune_at`: got {}, which is after exchange {} of {}: wanted one after the {} of `local_after` or "
                    "later; weights are not exchanged, and nothing is pruned, before",
                    options.prune_at, open, last, options.local_after));
  }
  if (options.prune_start != kAutomatic) refuse_later_than(last, "`prune_start`", options.prune_start);
  if (options.prune_end != kAutomatic) refuse_later_than(last, "`prune_end`", options.prune_end);
  if (options.freeze_after != kAutomatic && options.freeze_after != strategies::kNever) {
    refuse_later_than(last, "`freeze_after`", options.freeze_after, ", or never");
  }
  if (options.local_after > 0) refuse_earlier_than_weights(options, length);
  if (options.masks.freeze_when_stable > 0 && length.freeze_after <= length.prune_end) {
    throw std::invalid_argument(
        fmt::format("`freeze_when_stable`: got {}, but masks freeze after exchange {} in any case, and not before {}: "
                    "wanted a larger `freeze_after`, or never",
                    options.masks.freeze_when_stable, length.freeze_after, length.prune_end));
  }
}

/// What begins with the last masks.
void refuse_what_masks_put_off(const TrainOptions& options, const RunLength& length) {
  const int64_t open = last_open_exchange(options, length);
  if (open < length.exchanges || options.ema == 0) return;
  throw std::invalid_argument(
      fmt::format("`ema`: begins when masks are final, after exchange {}, and this run has {}: wanted a smaller `{}`",
                  open, count_of(length.exchanges), options.strategy == "one_shot" ? "prune_at" : "freeze_after"));
}

/// The first exchange of weights, or of final masks, is waited for, and so is the last one.
void refuse_idle_overlap(const TrainOptions& options, const RunLength& length, bool masks) {
  if (options.overlap == 0) return;
  int64_t open = masks ? std::min(last_open_exchange(options, length), length.exchanges) : 0;
  if (masks && options.masks.freeze_when_stable > 0) open = std::min(open, length.prune_end - 1);
  const int64_t first = std::max(open, options.local_after) + 1;
  if (first + 1 < length.exchanges) return;
  throw std::invalid_argument(
      fmt::format("`overlap`: got {}, but the first exchange {}, {}, is waited for, and so is the last one, {}: wanted "
                  "some between them",
                  options.overlap, masks ? "with final masks" : "of weights", first, length.exchanges));
}

/// What to change for more exchanges.
std::string way_to_more_exchanges(const TrainOptions& options, const RunLength& length) {
  if (options.exchanges > 0) return fmt::format("try `exchanges` {}", kAdvised);
  const int64_t local_steps = length.steps / kAdvised;
  return local_steps > 0 ? fmt::format("try `local_steps` {}", local_steps) : "try more `epochs`";
}

const char* option_that_decides(const TrainOptions& options) {
  if (options.strategy == "one_shot") return "`prune_at`";
  if (options.freeze_after != kAutomatic) return "`freeze_after`";
  if (options.prune_end != kAutomatic) return "`prune_end`";
  return options.prune_start != kAutomatic ? "`prune_start`" : "";
}

/// The network is cut in the exchange after the last one with open masks; the steps that follow mend it.
std::string doubt_about_length(const TrainOptions& options, const RunLength& length) {
  const int64_t open = last_open_exchange(options, length);
  if (open == strategies::kNever) return "";
  const int64_t after = std::max<int64_t>(0, length.exchanges - open - 1);
  if (after * kShare >= length.exchanges) return "";
  const std::string option = option_that_decides(options);
  if (option.empty()) {
    return fmt::format("{}: masks need at least {}, or too little training follows the cut; {}",
                       count_of(length.exchanges), kFewest, way_to_more_exchanges(options, length));
  }
  return fmt::format("{}: {} of {} follow the cut, which is too little training to make up for it; try a smaller one",
                     option, after, count_of(length.exchanges));
}

std::string doubt_about_cuts(const TrainOptions& options, const RunLength& length) {
  const auto& pruning = options.pruning;
  if (pruning.target.empty()) return "";
  const int64_t first = first_cut(options, length), last = first + (pruning.steps - 1) * pruning.every;
  const bool may_be_trained = !options.weights.empty() || options.model.ends_with(".pt2");
  if (first == 0 && !may_be_trained) {
    return fmt::format(
        "`prune_to`: the first cut comes before {} is trained; wanted `epochs` above 0, `weights`, or a trained "
        "network's file as `model`",
        options.model);
  }
  if (last < length.exchanges) return "";
  return fmt::format("`prune_to`: the last cut comes at the end of the run, after {}: no training follows; {}",
                     count_of(length.exchanges), way_to_more_exchanges(options, length));
}

/// Shares that are rounded up to everything.
std::string doubt_about_rounding(const TrainOptions& options, const std::vector<sparsity::Group>& groups) {
  const bool asked = options.keep < 1 || options.groups.find(':') != std::string::npos;
  const auto stays = [](const sparsity::Group& group) {
    return sparsity::units_kept(group.size, group.keep) == group.size;
  };
  if (!asked || !std::all_of(groups.begin(), groups.end(), stays)) return "";
  int64_t widest = 0;
  for (const auto& group : groups) widest = std::max(widest, group.size);
  if (options.round_to == kAutomatic) {
    return fmt::format(
        "`keep`: got {}, which `round_to` auto rounds to all units of every group: nothing is pruned; "
        "try `round_to` 1",
        options.keep);
  }
  throw std::invalid_argument(
      fmt::format("`round_to`: got {}, wanted less: the widest group has {} units, and by `keep` {} all of them stay",
                  options.round_to, widest, options.keep));
}

}  // namespace

std::vector<std::string> check_plan(const TrainOptions& options, const RunLength& length,
                                    const std::vector<sparsity::Group>& groups) {
  std::vector<std::string> doubts;
  refuse_what_never_begins(options, length);
  if (!groups.empty()) {
    refuse_what_never_comes(options, length);
    refuse_what_masks_put_off(options, length);
    const std::string rounding = doubt_about_rounding(options, groups);
    doubts.push_back(rounding.empty() ? doubt_about_length(options, length) : rounding);
  }
  refuse_idle_overlap(options, length, !groups.empty());
  doubts.push_back(doubt_about_cuts(options, length));
  std::erase(doubts, "");
  return doubts;
}

}  // namespace prunex::train
