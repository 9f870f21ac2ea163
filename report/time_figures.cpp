#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "report/figures.h"
#include "report/plot.h"

namespace prunex::report {
namespace {

constexpr int64_t kExchanges = 3;  // in the window
constexpr size_t kMostLanes = 24, kMostStretches = 3000;

/// mask belongs to project, packing to the links between nodes, as in the seconds of metrics.jsonl.
size_t phase_number(const std::string& phase) {
  if (phase == "mask") return 2;
  if (phase == "pack" || phase == "unpack") return 3;
  const auto found = std::find_if(kPhases.begin(), kPhases.end(), [&](const Phase& one) { return one.name == phase; });
  return std::min<size_t>(static_cast<size_t>(found - kPhases.begin()), kPhases.size() - 1);
}

/// With the work that a phase of the table contains.
std::string words_of(const std::string& phase) {
  if (phase == "cut") return "cut of the network";
  if (phase == "mask") return "masks";
  if (phase == "pack" || phase == "unpack") return phase + "ing";
  const size_t number = phase_number(phase);
  return number + 1 == kPhases.size() ? phase : std::string(kPhases[number].words);
}

/// Around the exchange in which the masks became final, or the first ones.
int64_t first_exchange(const Run& run) {
  for (const auto& exchange : run.exchanges) {
    if (exchange.frozen && exchange.index > 2) return exchange.index - 1;
  }
  return 1;
}

/// All that begins while the exchanges of the window are under way.
std::vector<Span> window(const Run& run, int64_t from) {
  Range time;
  for (const auto& span : run.trace) {
    if (span.exchange < from || span.exchange >= from + kExchanges || span.phase == "evaluate") continue;
    time.add(span.begin);
    time.add(span.begin + span.seconds);
  }
  std::vector<Span> inside;
  for (auto span : run.trace) {
    if (time.empty() || span.begin < time.low() || span.begin > time.high()) continue;
    span.begin -= time.low();
    inside.push_back(std::move(span));
  }
  return inside;
}

std::vector<Stretch> traced(const Run& run, int64_t from, std::vector<std::string>& rows) {
  const auto spans = window(run, from);
  std::map<std::pair<int64_t, int64_t>, size_t> ranks;
  for (const auto& span : spans) ranks[{span.node, span.rank}] = 0;
  for (auto& [rank, row] : ranks) {
    row = rows.size();
    rows.push_back(fmt::format("node {}, rank {}", rank.first, rank.second));
  }
  std::vector<Stretch> stretches;
  for (const auto& span : spans) {
    stretches.push_back({ranks.at({span.node, span.rank}), static_cast<int>(phase_number(span.phase)), span.begin,
                         span.seconds,
                         fmt::format("{}: {}", words_of(span.phase), format(span.seconds, Unit::kSeconds))});
  }
  return stretches;
}

/// From the means over ranks: the phases of the same exchanges, one after the other.
std::vector<Stretch> from_seconds(const Run& run, int64_t from, size_t row) {
  std::vector<Stretch> stretches;
  double at = 0;
  for (const auto& exchange : run.exchanges) {
    if (exchange.index < from || exchange.index >= from + kExchanges) continue;
    for (size_t i = 0; i + 1 < kPhases.size(); ++i) {
      const double part = exchange.seconds.*kPhases[i].part;
      if (part <= 0) continue;
      stretches.push_back(
          {row, static_cast<int>(i), at, part,
           fmt::format("exchange {}, {}: {}", exchange.index, kPhases[i].words, format(part, Unit::kSeconds))});
      at += part;
    }
  }
  return stretches;
}

/// What can be seen; `text` says what is left out.
void limit(std::vector<std::string>& rows, std::vector<Stretch>& stretches, std::string& text) {
  if (rows.size() > kMostLanes) {
    text += fmt::format(" The first {} of {} rows.", kMostLanes, rows.size());
    rows.resize(kMostLanes);
    std::erase_if(stretches, [](const Stretch& one) { return one.row >= kMostLanes; });
  }
  if (stretches.size() > kMostStretches) {
    text += fmt::format(" The first {} of {} stretches of time.", kMostStretches, stretches.size());
    stretches.resize(kMostStretches);
  }
}

const Run* first_traced(const Task& task) {
  for (const auto& variant : task.variants) {
    for (const Run* run : variant.runs) {
      if (!run->trace.empty()) return run;
    }
  }
  return nullptr;
}

std::vector<Sample> exchange_seconds(const Run& run) {
  std::vector<Sample> samples;
  for (const auto& exchange : run.exchanges) {
    samples.push_back({exchange.index, static_cast<double>(exchange.samples), exchange.seconds.exchange()});
  }
  return samples;
}

Figure exchange_figure(const Task& task) {
  const auto series = series_of(task, exchange_seconds, false);
  const Axis x{"training images seen"}, y{"seconds per exchange, mean over ranks", Unit::kSeconds, ScaleKind::kLog};
  return figure_of(
      "exchange-time", "Time per exchange", {Plot{x, y, series, {}}},
      "Measured: sums in the node, node update and masks, between nodes, duals; waiting for others included.");
}

using Parts = std::vector<Phase>;

/// Stacked means over the seeds of parts of the seconds, divided by `per`.
Bars parts_of(const Task& task, const Axis& axis, const Parts& parts, double (*per)(const Summary&)) {
  Bars bars{axis, {}, {}};
  for (const auto& phase : parts) bars.parts.emplace_back(phase.words);
  for (const auto& variant : task.variants) {
    const auto mean_of = [&](const Parts& some) {
      return over_seeds(variant, [&](const Run& run) -> std::optional<double> {
        double sum = 0;
        for (const auto& phase : some) sum += run.summary->seconds.*phase.part;
        return sum / std::max(1.0, per(*run.summary));
      });
    };
    Bar bar{variant.name, {}, whisker(mean_of(parts))};
    for (const auto& phase : parts) {
      if (const Spread mean = mean_of({phase}); mean.count > 0) bar.parts.push_back(mean.mean);
    }
    if (!bar.parts.empty()) bars.bars.push_back(bar);
  }
  return bars;
}

Figure breakdown_figure(const Task& task) {
  Bars bars = parts_of(task, {"mean seconds per exchange", Unit::kSeconds}, {kPhases.begin() + 1, kPhases.end() - 2},
                       [](const Summary& summary) { return static_cast<double>(summary.exchanges); });
  bars.first_style = 1;  // the colours of budget_figure
  return figure_of(
      "breakdown", "Parts of an exchange", bars,
      "Measured on the machine of the runs; between nodes includes packing and unpacking. Mean over exchanges and "
      "seeds; whisker: of their sum, lowest to highest seed.");
}

Figure budget_figure(const Task& task) {
  return figure_of("budget", "Where the time goes",
                   parts_of(task, {"seconds of the whole run", Unit::kSeconds}, {kPhases.begin(), kPhases.end() - 1},
                            [](const Summary&) { return 1.0; }),
                   "Measured; mean over ranks and seeds; whisker: lowest to highest seed.");
}

std::optional<double> images_per_second(const Run& run) {
  const double seconds = training_seconds(run.summary->seconds);
  if (seconds <= 0) return std::nullopt;
  return static_cast<double>(run.summary->samples) / seconds;
}

/// What stays the same when only the ranks change, and with them the share of a step that each has.
std::map<std::string, std::string> beside_layout(const Run& run) {
  auto options = identity(run);
  for (const char* changed : {"nodes", "ranks-per-node", "sites", "batch-size", "local-steps", "threads", "lr"}) {
    options.erase(changed);
  }
  return options;
}

/// A rate of a layout.
struct Measured {
  const Variant* variant;
  Point point;  // x: ranks

  std::string option(const std::string& name) const { return variant->first().option(name); }
};

/// Runs that differ in their layouts.
struct Family {
  const Run& first;
  std::map<std::string, std::string> options;
  std::vector<Measured> members;

  /// Options that a layout has no use for, as one node has none for --partition, are not among those of its runs.
  bool takes(const Run& run) const {
    const auto others = beside_layout(run);
    const bool fewer =
        (run.nodes() == 1 && first.nodes() > 1) || (run.ranks() == run.nodes() && first.ranks() > first.nodes());
    const auto is_own = [&](const auto& option) {
      const auto found = options.find(option.first);
      return found != options.end() && found->second == option.second;
    };
    return (others.size() == options.size() || fewer) && std::all_of(others.begin(), others.end(), is_own);
  }
};

/// Members that differ only in their layouts and in what may change with them.
std::vector<Family> families_of(const Task& task) {
  std::vector<const Variant*> variants;
  for (const auto& variant : task.variants) variants.push_back(&variant);
  std::stable_sort(variants.begin(), variants.end(), [](const Variant* a, const Variant* b) {
    return beside_layout(a->first()).size() > beside_layout(b->first()).size();
  });
  std::vector<Family> families;
  for (const Variant* variant : variants) {
    const Spread rate = over_seeds(*variant, images_per_second);
    if (rate.count == 0) continue;
    const Run& run = variant->first();
    const Measured member{variant, {static_cast<double>(run.ranks()), rate.mean, Interval{rate.low, rate.high}}};
    bool taken = false;
    for (auto& family : families) {
      if (!family.takes(run)) continue;
      family.members.push_back(member);
      taken = true;
    }
    if (!taken) families.push_back({run, beside_layout(run), {member}});
  }
  return families;
}

/// Where members of as many ranks differ in an option, those of each value by themselves; of what is left, the first of
/// every number of ranks.
std::vector<std::vector<Measured>> split(const std::vector<Measured>& members) {
  for (const char* option : {"lr", "local-steps", "batch-size", "ranks-per-node", "sites", "threads"}) {
    std::map<double, std::set<std::string>> values;
    std::map<std::string, std::vector<Measured>> parts;
    for (const auto& member : members) {
      values[member.point.x].insert(member.option(option));
      parts[member.option(option)].push_back(member);
    }
    if (std::all_of(values.begin(), values.end(), [](const auto& of_count) { return of_count.second.size() == 1; })) {
      continue;
    }
    std::vector<std::vector<Measured>> all;
    for (const auto& [value, part] : parts) {
      for (auto& one : split(part)) all.push_back(std::move(one));
    }
    return all;
  }
  std::map<double, Measured> one_each;
  for (const auto& member : members) one_each.emplace(member.point.x, member);
  std::vector<Measured> kept;
  for (const auto& [count, member] : one_each) kept.push_back(member);
  return {kept};
}

/// Rates by number of ranks, of families that ran with several.
std::vector<Series> rates(const Task& task) {
  std::vector<Series> series;
  for (const auto& family : families_of(task)) {
    for (const auto& members : split(family.members)) {
      if (members.size() < 2) continue;
      const Variant& largest = *members.back().variant;
      Series one{largest.name, largest.style, {}, true, true};
      for (const auto& member : members) one.points.push_back(member.point);
      series.push_back(std::move(one));
    }
  }
  return series;
}

Figure scaling_figure(const Task& task) {
  const auto series = rates(task);
  if (series.empty()) {
    return missing_figure(
        "scaling", "Scaling",
        "wanted runs that differ only in --nodes or --ranks-per-node; all of these ran on equal layouts");
  }
  std::set<double> counts;
  for (const auto& one : series) {
    for (const auto& point : one.points) counts.insert(point.x);
  }
  const Axis ranks{"ranks", Unit::kNumber, ScaleKind::kLog, false, {counts.begin(), counts.end()}};
  const Axis rate{"images per second", Unit::kNumber, ScaleKind::kLog};
  const Axis share{"efficiency", Unit::kShare, ScaleKind::kLinear, true};
  auto efficiency = series;
  for (auto& one : efficiency) {
    const auto base = one.points.front();
    const auto efficient = [&](double ranks, double rate) { return rate / ranks / (base.y / base.x); };
    for (auto& point : one.points) {
      const Interval rates = *point.spread;
      point = {point.x, efficient(point.x, point.y),
               Interval{efficient(point.x, rates.low), efficient(point.x, rates.high)}};
    }
  }
  return figure_of(
      "scaling", "Scaling", {Plot{ranks, rate, series, {}}, Plot{ranks, share, efficiency, {}}},
      "Above: training images per second of all ranks, evaluation not in the time. Below: per rank, against the "
      "smallest layout. A line has one run of every number of ranks: where several have learning rates, intervals or "
      "batches of their own, those that agree in them.");
}

}  // namespace

Figure timeline_figure(const Task& task) {
  Figure figure{.id = "timeline", .title = "Phases over time", .boxes = true};
  std::vector<std::string> rows;
  std::vector<Stretch> stretches;
  if (const Run* run = first_traced(task)) {
    const int64_t from = first_exchange(*run);
    stretches = traced(*run, from, rows);
    figure.text = fmt::format("Measured, every rank, exchanges {} to {} of {}, from its trace.json.", from,
                              from + kExchanges - 1, run->directory);
  } else {
    for (const auto& variant : task.variants) {
      const auto mine = from_seconds(variant.first(), first_exchange(variant.first()), rows.size());
      if (mine.empty()) continue;
      rows.push_back(variant.name);
      stretches.insert(stretches.end(), mine.begin(), mine.end());
    }
    figure.text = fmt::format(
        "Means over ranks, {} exchanges of one seed, from the last before the masks are final; "
        "runs with --trace show every rank.",
        kExchanges);
  }
  limit(rows, stretches, figure.text);
  if (stretches.empty()) return missing_figure(figure.id, figure.title, "no run has a trace.json or seconds");
  figure.drawings = {draw_rows({"seconds", Unit::kSeconds}, rows, stretches)};
  Table table{{{"row", {}}, {"phase", {}}, {"begin", Unit::kSeconds}, {"length", Unit::kSeconds}}, {}};
  for (const auto& [row, style, begin, length, hint] : stretches) {
    table.rows.push_back({rows[row], std::string(kPhases[static_cast<size_t>(style)].words), begin, length});
  }
  figure.tables = {std::move(table)};
  for (size_t i = 0; i < kPhases.size(); ++i) {
    const bool drawn = std::any_of(stretches.begin(), stretches.end(),
                                   [&](const Stretch& one) { return one.style == static_cast<int>(i); });
    if (drawn) figure.legend.push_back({std::string(kPhases[i].words), static_cast<int>(i)});
  }
  return figure;
}

std::vector<Figure> time_figures(const Task& task) {
  return {exchange_figure(task), breakdown_figure(task), budget_figure(task), scaling_figure(task)};
}

}  // namespace prunex::report
