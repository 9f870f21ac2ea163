#include <fmt/format.h>

#include <string>
#include <vector>

#include "report/figures.h"
#include "report/verdict.h"

namespace prunex::report {
namespace {

constexpr double kSmall = 0.003;  // a share: three of a thousand images

Cell seeds_cell(double size, double deviation) {
  if (size == 0 || deviation == 0) return {};
  const auto seeds = seeds_to_tell(size, deviation);
  return seeds ? std::to_string(*seeds) : fmt::format("over {}", kMostSeeds);
}

std::string shown_by(const Difference& points) {
  if (points.is_none()) return "no difference";
  if (points.half_width == 0) return "all pairs alike: no interval";  // of accuracies counted in whole images
  return points.mean > 0 ? "better" : "worse";
}

std::vector<Cell> row_of(const Variant& variant, const Difference& points) {
  Cell name(variant.name);
  name.style = variant.style;
  return {name,
          points_text(points),
          std::to_string(points.pairs),
          shown_by(points),
          100 * points.deviation,
          seeds_cell(kSmall, points.deviation),
          seeds_cell(std::abs(points.mean), points.deviation)};
}

Estimate estimate_of(const Variant& variant, const Difference& points) {
  const double at = 100 * points.mean, half_width = 100 * points.half_width;
  return {variant.name, variant.style, at, {at - half_width, at + half_width}};
}

}  // namespace

Figure difference_figure(const Task& task) {
  Figure figure{.id = "differences", .unfolded = true};
  const Variant* ddp = reference(task);
  if (ddp == nullptr) return figure;
  figure.title = fmt::format("Accuracy against {}, seed by seed", ddp->name);
  Table table{{{"run", {}},
               {.name = "points", .right = true},
               {.name = "pairs", .right = true},
               {"shown", {}},
               {.name = "deviation of a pair", .digits = 2, .detail = true},
               {.name = fmt::format("seeds to show {}", plain(100 * kSmall, 2)), .right = true},
               {.name = "seeds to show this", .right = true}},
              {}};
  std::vector<Estimate> estimates;
  const auto of_ddp = by_seed(*ddp, accuracy_of);
  for (const auto& variant : task.variants) {
    const Difference points = difference(by_seed(variant, accuracy_of), of_ddp);
    if (&variant == ddp || points.pairs < 2) continue;
    table.rows.push_back(row_of(variant, points));
    estimates.push_back(estimate_of(variant, points));
  }
  if (estimates.empty()) return figure;
  figure.drawings = {draw({"points"}, estimates)};
  figure.tables = {std::move(table)};
  figure.text = fmt::format(
      "Mean over pairs of equal seeds and its 95 % confidence interval (Student's t); each row by itself, without a "
      "correction for their number. No difference: the interval holds 0. Seeds to show a difference: as many pairs as "
      "make the interval narrower than it, if pairs go on to differ by this deviation; here {} points, and what was "
      "seen.",
      plain(100 * kSmall, 2));
  return figure;
}

}  // namespace prunex::report
