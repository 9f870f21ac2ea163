#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "report/bars.h"
#include "report/figures.h"
#include "report/phases.h"

namespace prunex::report {
namespace {

constexpr int64_t kExchanges = 3;  // in the window
constexpr size_t kMostRows = 24, kMostStretches = 3000;

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
    const auto& s = exchange.seconds;
    const std::array<double, 6> parts{s.local, s.intra, s.project, s.inter, s.dual, s.evaluate};
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i] <= 0) continue;
      stretches.push_back(
          {row, static_cast<int>(i), at, parts[i],
           fmt::format("exchange {}, {}: {}", exchange.index, kPhases[i].words, format(parts[i], Unit::kSeconds))});
      at += parts[i];
    }
  }
  return stretches;
}

/// What can be seen; `text` says what is left out.
void limit(std::vector<std::string>& rows, std::vector<Stretch>& stretches, std::string& text) {
  if (rows.size() > kMostRows) {
    text += fmt::format(" The first {} of {} rows.", kMostRows, rows.size());
    rows.resize(kMostRows);
    std::erase_if(stretches, [](const Stretch& one) { return one.row >= kMostRows; });
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

}  // namespace prunex::report
