#include "report/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "report/drawing.h"
#include "report/figures.h"

namespace prunex::report {
namespace {

/// A quantity in which runs compete.
struct Contest {
  std::string what, superlative;  // "Test accuracy", "Best test accuracy"
  Quantity quantity;
  bool more_is_better = false;
  std::string unit;     // behind the value
  std::string than;     // behind the ratio: "times fewer than"
  bool counted = true;  // equal from run to run, so that one seed will do
  Unit format = Unit::kNumber;
  bool timed_once = false;  // some variant's seeds share one timing

  bool is_accuracy() const { return more_is_better; }
};

// Seconds are those of an image: runs may be of different length.

std::optional<double> priced_seconds(const Run& run) {
  const Cost cost = cost_of(run);
  if (cost.bytes == 0 || run.summary->samples == 0) return std::nullopt;
  return seconds_at(cost, kUsualMbit) / static_cast<double>(run.summary->samples);
}

std::optional<double> measured_seconds(const Run& run) {
  const double seconds = training_seconds(run.summary->seconds);
  if (seconds <= 0 || run.summary->samples == 0) return std::nullopt;
  return seconds / static_cast<double>(run.summary->samples);
}

std::optional<double> parameters(const Run& run) {
  const auto count = run.summary->parameters_compact;
  return count > 0 ? std::optional(static_cast<double>(count)) : std::nullopt;
}

std::vector<Contest> contests_of(const Task& task) {
  const bool priced = std::any_of(task.variants.begin(), task.variants.end(),
                                  [](const Variant& variant) { return over_seeds(variant, priced_seconds).count > 0; });
  Contest time{"Measured training time",
               "Shortest measured training",
               measured_seconds,
               false,
               " per image",
               "times as fast as",
               false,
               Unit::kSeconds};
  if (priced) {
    time.what = fmt::format("Computed time at {}", format(kUsualMbit, Unit::kMbit));
    time.superlative = fmt::format("Shortest time at {}, computed", format(kUsualMbit, Unit::kMbit));
    time.quantity = priced_seconds;
    const auto has_timing = [](const Variant& variant) { return !variant.first().timed.empty(); };
    time.timed_once = std::any_of(task.variants.begin(), task.variants.end(), has_timing);
  }
  return {{"Test accuracy", "Best test accuracy", accuracy_of, true, "", "", false, Unit::kShare},
          {"Bytes between nodes", "Fewest bytes between nodes", bytes_per_sample, false, " per image",
           "times fewer than", true, Unit::kBytes},
          time,
          {"Size", "Smallest network", parameters, false, " parameters", "times smaller than", true, Unit::kNumber}};
}

struct Entrant {
  const Variant* variant = nullptr;
  std::map<std::string, double> values;  // by seed
  Spread spread;
};

/// Those with values, the best first.
std::vector<Entrant> entrants_of(const Task& task, const Contest& contest) {
  std::vector<Entrant> entrants;
  for (const auto& variant : task.variants) {
    if (variant.is_later_stage()) continue;
    const Spread spread = over_seeds(variant, contest.quantity);
    if (spread.count > 0) entrants.push_back({&variant, by_seed(variant, contest.quantity), spread});
  }
  std::stable_sort(entrants.begin(), entrants.end(), [&](const Entrant& a, const Entrant& b) {
    return contest.more_is_better ? a.spread.mean > b.spread.mean : a.spread.mean < b.spread.mean;
  });
  return entrants;
}

/// Of two entrants.
struct Gap {
  Difference difference;
  std::string doubt;  // why there is no interval

  Gap(const Entrant& a, const Entrant& b) : difference(report::difference(a.values, b.values)) {
    if (difference.half_width > 0) return;
    const bool has_one = a.values.size() == 1 || b.values.size() == 1;
    doubt = has_one ? " (one seed: it may be chance)" : " (by as much in every seed, which gives no interval)";
  }
};

std::string value_of(const Contest& contest, const Entrant& entrant) {
  if (contest.is_accuracy()) return percent(entrant.spread.mean, entrant.spread.half_width);
  const Spread accuracy = over_seeds(*entrant.variant, accuracy_of);
  return fmt::format("{}{} (accuracy {})", format(entrant.spread.mean, contest.format), contest.unit,
                     format(accuracy.mean, Unit::kShare));
}

/// In points, without the sign.
std::string size_text(const Difference& difference) {
  const double size = std::abs(100 * difference.mean), half_width = 100 * difference.half_width;
  return half_width == 0 ? plain(size, 3) : with_interval(size, half_width);
}

/// "2.3 ± 1.1 points above" or "1.9 times fewer than", and whose it is.
std::string lead(const Contest& contest, const Entrant& best, const Entrant& other, const std::string& name) {
  const Gap gap(best, other);
  const std::string doubt = contest.counted ? "" : contest.timed_once ? " (one timing: it may be chance)" : gap.doubt;
  if (contest.is_accuracy()) {
    return fmt::format("{} points above {}{}", size_text(gap.difference), name, doubt);
  }
  return fmt::format("{} {} {}{}", plain(other.spread.mean / best.spread.mean, 3), contest.than, name, doubt);
}

/// Of the best and those that nothing shows to be behind it: which are named, how many there are.
std::string level_text(const Contest& contest, const std::vector<Entrant>& entrants,
                       const std::vector<const Entrant*>& level, const Variant* ddp) {
  const auto named = std::find_if(level.begin(), level.end(), [&](const Entrant* one) { return one->variant == ddp; });
  const Entrant& other = named == level.end() ? *level.front() : **named;
  const size_t more = level.size() - 1;
  if (contest.counted) {
    return fmt::format("; as much: {}{}", other.variant->name, more > 0 ? fmt::format(" and {} more", more) : "");
  }
  std::string text = fmt::format("; no difference shown from {}, {}", other.variant->name, value_of(contest, other));
  if (contest.is_accuracy()) {
    text += fmt::format(" (difference: {} points)", points_text(Gap(entrants.front(), other).difference));
  }
  return more > 0 ? text + fmt::format(", nor from {} more", more) : text;
}

std::string sentence_of(const Contest& contest, const std::vector<Entrant>& entrants, const Variant* ddp) {
  const Entrant& best = entrants.front();
  if (entrants.size() == 1) {
    return fmt::format("{} of {}: {}.", contest.what, best.variant->name, value_of(contest, best));
  }
  std::vector<const Entrant*> level;
  const Entrant* reference = nullptr;
  for (size_t i = 1; i < entrants.size(); ++i) {
    const Difference gap = Gap(best, entrants[i]).difference;
    const bool is_level = contest.counted ? gap.mean == 0 : gap.is_none();  // what was counted has no doubt
    if (is_level) level.push_back(&entrants[i]);
    if (!is_level && entrants[i].variant == ddp) reference = &entrants[i];
  }
  std::string text = fmt::format("{}: {}, {}", contest.superlative, best.variant->name, value_of(contest, best));
  if (!level.empty()) {
    text += level_text(contest, entrants, level, ddp);
  } else if (reference != &entrants[1]) {
    text += ", " + lead(contest, best, entrants[1], "the next, " + entrants[1].variant->name);
  }
  if (reference != nullptr)
    text += (level.empty() ? ", " : "; ") + lead(contest, best, *reference, reference->variant->name);
  return text + ".";
}

/// Numbers of the variants that have a colour, in the order in which they deserve it.
std::vector<const Variant*> deserving(const Task& task) {
  std::vector<const Variant*> chosen;
  const auto choose = [&](const Variant* variant) {
    const bool known = std::find(chosen.begin(), chosen.end(), variant) != chosen.end();
    if (variant != nullptr && !known && chosen.size() < Style::kHighlights) chosen.push_back(variant);
  };
  choose(reference(task));
  for (const auto& contest : contests_of(task)) {
    if (const auto entrants = entrants_of(task, contest); !entrants.empty()) choose(entrants.front().variant);
  }
  std::set<std::string> strategies;
  for (const Variant* variant : chosen) strategies.insert(variant->strategy());
  for (const auto& variant : task.variants) {
    if (strategies.insert(variant.strategy()).second) choose(&variant);
  }
  for (const auto& variant : task.variants) choose(&variant);
  return chosen;
}

}  // namespace

std::string points_text(const Difference& points) {
  const std::string sign = points.mean > 0 ? "+" : points.mean < 0 ? "−" : "";
  return sign + size_text(points);
}

const Variant* reference(const Task& task) {
  const Variant* best = nullptr;
  std::pair<size_t, double> most{0, 0};  // seeds before accuracy: one lucky seed is no reference
  for (const auto& variant : task.variants) {
    const Spread accuracy = over_seeds(variant, accuracy_of);
    const std::pair has{accuracy.count, accuracy.mean};
    const bool is_ddp = variant.strategy() == "ddp" && !variant.is_later_stage();
    if (!is_ddp || accuracy.count == 0 || has <= most) continue;
    best = &variant;
    most = has;
  }
  return best;
}

std::vector<std::string> verdict_of(const Task& task) {
  std::vector<std::string> sentences;
  for (const auto& contest : contests_of(task)) {
    if (const auto entrants = entrants_of(task, contest); !entrants.empty()) {
      sentences.push_back(sentence_of(contest, entrants, reference(task)));
    }
  }
  if (sentences.empty()) sentences.push_back("No run has finished yet.");
  return sentences;
}

void arrange(Task& task) {
  std::vector<std::pair<double, Variant>> sorted;
  for (auto& variant : task.variants) {
    const Spread accuracy = over_seeds(variant, accuracy_of);
    sorted.emplace_back(accuracy.count > 0 ? accuracy.mean : -1, std::move(variant));
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (size_t i = 0; i < sorted.size(); ++i) task.variants[i] = std::move(sorted[i].second);
  const auto chosen = deserving(task);
  int style = 0;
  for (auto& variant : task.variants) {
    const bool has_colour = std::find(chosen.begin(), chosen.end(), &variant) != chosen.end();
    variant.style = has_colour ? style++ : Style::kOther;
  }
}

}  // namespace prunex::report
