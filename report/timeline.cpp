#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "report/bars.h"
#include "report/figures.h"

namespace prunex::report {
namespace {

constexpr int64_t kExchanges = 3;  // in the window
constexpr std::array<const char*, 7> kPhases{"local", "intra", "project", "inter", "dual", "evaluate", "other"};

/// mask belongs to project, packing to the links between nodes, as in the seconds of metrics.jsonl.
size_t phase_number(const std::string& phase) {
  if (phase == "mask") return 2;
  if (phase == "pack" || phase == "unpack") return 3;
  const auto found = std::find(kPhases.begin(), kPhases.end(), phase);
  return std::min<size_t>(static_cast<size_t>(found - kPhases.begin()), kPhases.size() - 1);
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
  std::set<std::pair<int, int>> ranks;
  for (const auto& span : spans) ranks.insert({span.node, span.rank});
  for (const auto& [node, rank] : ranks) rows.push_back(fmt::format("node {}, rank {}", node, rank));
  std::vector<Stretch> stretches;
  for (const auto& span : spans) {
    const auto row = static_cast<size_t>(std::distance(ranks.begin(), ranks.find({span.node, span.rank})));
    stretches.push_back({row, static_cast<int>(phase_number(span.phase)), span.begin, span.seconds,
                         fmt::format("{}: {}", span.phase, format(span.seconds, Unit::kSeconds))});
  }
  return stretches;
}

/// From the means over ranks: the phases of the same exchanges, one after the other.
std::vector<Stretch> from_seconds(const Run& run, int64_t from, size_t row) {
  std::vector<Stretch> stretches;
  double at = 0;
  for (const auto& exchange : run.exchanges) {
    if (exchange.index < from || exchange.index >= from + kExchanges) continue;
    const auto& s = exchange.seconds;
    const std::array<double, 6> parts{s.local, s.intra, s.project, s.inter, s.dual, s.evaluate};
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i] <= 0) continue;
      stretches.push_back(
          {row, static_cast<int>(i), at, parts[i],
           fmt::format("exchange {}, {}: {}", exchange.index, kPhases[i], format(parts[i], Unit::kSeconds))});
      at += parts[i];
    }
  }
  return stretches;
}

const Run* first_traced(const Task& task) {
  for (const auto& variant : task.variants) {
    for (const Run* run : variant.runs) {
      if (!run->trace.empty()) return run;
    }
  }
  return nullptr;
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
  if (stretches.empty()) return missing_figure(figure.id, figure.title, "no run has a trace.json or seconds");
  figure.drawings = {draw_rows({"seconds", Unit::kSeconds}, rows, stretches)};
  figure.table.columns = {{"row", {}}, {"phase", {}}, {"begin", Unit::kSeconds}, {"length", Unit::kSeconds}};
  for (const auto& [row, style, begin, length, hint] : stretches) {
    figure.table.rows.push_back({rows[row], std::string(kPhases[static_cast<size_t>(style)]), begin, length});
  }
  for (size_t i = 0; i < kPhases.size(); ++i) figure.legend.push_back({kPhases[i], static_cast<int>(i)});
  return figure;
}

}  // namespace prunex::report
