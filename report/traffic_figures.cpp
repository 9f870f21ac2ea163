#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/figures.h"
#include "report/verdict.h"

namespace prunex::report {
namespace {

constexpr double kAtBound = 0.01;

Curve per_exchange(double (*what)(const Exchange&)) {
  return [what](const Run& run) {
    std::vector<Sample> samples;
    for (const auto& exchange : run.exchanges) {
      samples.push_back({exchange.index, static_cast<double>(exchange.samples), what(exchange)});
    }
    return samples;
  };
}

double message(const Exchange& exchange) {
  return static_cast<double>(exchange.inter_node_bytes);
}
double changes(const Exchange& exchange) {
  return static_cast<double>(exchange.mask_changes);
}

/// Where the masks of the first variant that freezes became final.
std::vector<Rule> freeze(const Task& task) {
  for (const auto& variant : task.variants) {
    const auto& exchanges = variant.first().exchanges;
    const auto first = std::find_if(exchanges.begin(), exchanges.end(), [](const Exchange& e) { return e.frozen; });
    if (first != exchanges.begin() && first != exchanges.end()) {
      return {{static_cast<double>(first->samples), "masks final"}};
    }
  }
  return {};
}

Figure message_figure(const Task& task) {
  const auto sizes = series_of(task, per_exchange(message), false);
  const auto rules = freeze(task);
  const Axis size{"bytes between nodes per exchange", Unit::kBytes, ScaleKind::kLog};
  const Axis change{"units whose mask changed"};
  std::vector<Series> changing = series_of(task, per_exchange(changes), false);
  std::erase_if(changing, [](const Series& series) {
    return std::all_of(series.points.begin(), series.points.end(), [](const Point& point) { return point.y == 0; });
  });
  Figure figure = figure_of("messages", "Message size per exchange, and mask changes",
                            {Plot{kSamples, size, sizes, rules}, Plot{kSamples, change, changing, rules}});
  figure.text = "Above: what one node sends to others in one exchange. ";
  figure.text += changing.empty() ? "No run changes masks." : "Below: units of the groups whose mask changed in it.";
  return figure;
}

/// One bar per variant with finished runs: the mean over seeds, and from the lowest to the highest.
Bars one_bar_each(const Task& task, const Axis& axis, const Quantity& quantity) {
  Bars bars{axis, {axis.label}, {}};
  for (const auto& variant : task.variants) {
    const Spread spread = over_seeds(variant, quantity);
    if (spread.count > 0) bars.bars.push_back({variant.name, {spread.mean}, whisker(spread)});
  }
  return bars;
}

/// The variant to compare with: its first run has computed what its steps would send.
const Variant* with_references(const Task& task) {
  const auto knows = [](const Variant& variant) {
    const auto finished = variant.finished();
    return !finished.empty() && finished[0]->summary->inter_node_bytes_ddp > 0 && !variant.is_later_stage();
  };
  if (const Variant* ddp = reference(task); ddp != nullptr && knows(*ddp)) return ddp;
  const auto first = std::find_if(task.variants.begin(), task.variants.end(), knows);
  return first == task.variants.end() ? nullptr : &*first;
}

Figure volume_figure(const Task& task) {
  Bars bars = one_bar_each(task, {"bytes between nodes, whole run", Unit::kBytes, ScaleKind::kLog},
                           [](const Run& run) -> std::optional<double> {
                             if (run.summary->inter_node_bytes == 0) return std::nullopt;
                             return static_cast<double>(run.summary->inter_node_bytes);
                           });
  std::string whose = "some run";
  if (const Variant* variant = with_references(task); variant != nullptr && !bars.bars.empty()) {
    const Summary& summary = *variant->finished()[0]->summary;
    const auto add = [&](const char* name, int64_t bytes) {
      bars.bars.push_back({name, {static_cast<double>(bytes)}, {}});
    };
    add("DDP, computed", summary.inter_node_bytes_ddp);
    add("DDP, flat ring, computed", summary.inter_node_bytes_ddp_flat);
    whose = variant->name;
  }
  return figure_of(
      "volumes", "Total volume", bars,
      fmt::format(
          "What one node sent to others in the whole run; mean over seeds, whisker: lowest to highest; log scale. DDP: "
          "the steps of {}, averaged in every one, fp32, computed: hierarchical, and one ring through all ranks.",
          whose));
}

Figure bound_figure(const Task& task) {
  Bars bars = one_bar_each(task, {"sent / least that an all-reduce of the payload can send"},
                           [](const Run& run) -> std::optional<double> {
                             if (run.summary->inter_node_bytes_bound == 0) return std::nullopt;
                             return static_cast<double>(run.summary->inter_node_bytes) /
                                    static_cast<double>(run.summary->inter_node_bytes_bound);
                           });
  Figure figure = figure_of("bound", "Bytes against the bound", bars);
  const auto at_bound = [](const Bar& bar) { return std::abs(total(bar) - 1) < kAtBound; };
  if (!bars.bars.empty() && std::all_of(bars.bars.begin(), bars.bars.end(), at_bound)) {
    figure.drawings.clear();
    figure.folded = true;
    figure.text =
        "Every run sent the least that an all-reduce of its payload can send, within 1 %: 2(M-1)/M x payload.";
    return figure;
  }
  figure.text =
      "Bytes sent by node 0 over 2(M-1)/M x payload; 1 is the bound. Shards of unequal size may put node 0 a little "
      "off it. Mean over seeds, whisker: lowest to highest.";
  return figure;
}

}  // namespace

std::vector<Figure> traffic_figures(const Task& task) {
  return {message_figure(task), volume_figure(task), bound_figure(task)};
}

}  // namespace prunex::report
