#include "report/plot.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/drawing.h"
#include "report/format.h"

namespace prunex::report {
namespace {

constexpr double kWidth = 640, kHeight = 350;
constexpr double kLeft = 80, kRight = 34, kTop = 16, kBottom = 46;
constexpr size_t kMostPoints = 300;

class Drawing {
 public:
  explicit Drawing(const Plot& plot)
      : plot_(plot),
        canvas_(kWidth, kHeight),
        x_(plot.x, all_x(plot), kLeft, kWidth - kRight),
        y_(plot.y, all_y(plot), kHeight - kBottom, kTop) {}

  std::string draw() {
    axes();
    for (const auto& rule : plot_.rules) draw(rule);
    for (const bool grey : {true, false}) {
      for (const auto& series : plot_.series) {
        if (!grey && series.style != Style::kOther) band(series);
      }
      for (const auto& series : plot_.series) {
        if (grey == (series.style == Style::kOther)) draw(series);
      }
    }
    for (const auto& rule : plot_.rules) name(rule);
    return canvas_.finish(plot_.y.label + " against " + plot_.x.label);
  }

 private:
  static std::vector<double> all_x(const Plot& plot) {
    std::vector<double> values;
    for (const auto& series : plot.series) {
      for (const auto& point : series.points) values.push_back(point.x);
    }
    return values;
  }
  static std::vector<double> all_y(const Plot& plot) {
    std::vector<double> values;
    for (const auto& series : plot.series) {
      for (const auto& point : series.points) {
        values.push_back(point.y);
        if (point.spread) values.insert(values.end(), {point.spread->low, point.spread->high});
      }
    }
    return values;
  }

  void axes() {
    const double bottom = kHeight - kBottom;
    for (const auto& [at, text] : y_.ticks()) {
      canvas_.line({kLeft, at}, {kWidth - kRight, at}, "g");
      canvas_.text({kLeft - 7, at + 4}, "end", text);
    }
    for (const auto& [at, text] : x_.ticks()) {
      canvas_.line({at, bottom}, {at, bottom + 4}, "a");
      canvas_.text({at, bottom + 18}, "middle", text);
    }
    canvas_.line({kLeft, bottom}, {kWidth - kRight, bottom}, "a");
    canvas_.text({(kLeft + kWidth - kRight) / 2, kHeight - 8}, "middle", plot_.x.label);
    canvas_.upright_text({14, (kTop + bottom) / 2}, plot_.y.label);
  }

  void draw(const Rule& rule) {
    if (rule.x < x_.low() || rule.x > x_.high()) return;
    const double x = x_.position(rule.x);
    canvas_.line({x, kTop}, {x, kHeight - kBottom}, "r");
  }

  /// Above the lines that it might lie on.
  void name(const Rule& rule) {
    if (rule.x < x_.low() || rule.x > x_.high()) return;
    const double x = x_.position(rule.x);
    const bool left = x > kWidth / 2;
    canvas_.text({x + (left ? -4 : 4), kTop + 10}, left ? "end" : "start", rule.name, "t small");
  }

  std::vector<Point> shown(const Series& series) const {
    std::vector<Point> points;
    for (const auto& point : series.points) {
      if (x_.shows(point.x) && y_.shows(point.y)) points.push_back(point);
    }
    std::vector<Point> few;
    for (const size_t i : thinned(points.size(), kMostPoints)) few.push_back(points[i]);
    return few;
  }

  Pixel place(double x, double y) const { return {x_.position(x), y_.position(y)}; }

  void band(const Series& series) {
    if (!series.line) return;
    std::vector<Pixel> upper, lower;
    for (const auto& point : shown(series)) {
      const auto spread = point.spread.value_or(Interval{point.y, point.y});
      upper.push_back(place(point.x, spread.high));
      lower.push_back(place(point.x, spread.low));
    }
    upper.insert(upper.end(), lower.rbegin(), lower.rend());
    const bool any = std::any_of(series.points.begin(), series.points.end(), [](const Point& p) { return p.spread; });
    if (any && upper.size() > 2) canvas_.area(upper, Style(series.style));
  }

  void draw(const Series& series) {
    const Style style(series.style);
    const auto points = shown(series);
    std::vector<Pixel> line;
    for (const auto& point : points) line.push_back(place(point.x, point.y));
    if (series.line && line.size() > 1) canvas_.path(line, style);
    if (!series.marks && line.size() > 1) return;
    for (const auto& point : points) {
      if (point.spread && !series.line) {
        canvas_.line(place(point.x, point.spread->low), place(point.x, point.spread->high), "w " + style.colour());
      }
      canvas_.mark(
          place(point.x, point.y), style,
          fmt::format("{}: {}, {}", series.name, format(point.x, plot_.x.unit), format(point.y, plot_.y.unit)));
    }
  }

  const Plot& plot_;
  Canvas canvas_;
  AxisScale x_, y_;
};

constexpr double kBarsLeft = 200, kBarsRight = 66, kBarsTop = 8, kRow = 26, kBar = 18;
constexpr double kEdge = 8;  // where titles begin
constexpr size_t kLongest = 24, kMostCells = 256;

void axis_below(Canvas& canvas, const Axis& axis, const AxisScale& scale, double bottom) {
  for (const auto& [at, text] : scale.ticks()) {
    canvas.line({at, kBarsTop}, {at, bottom}, "g");
    canvas.text({at, bottom + 16}, "middle", text);
  }
  canvas.text({(kBarsLeft + kWidth - kBarsRight) / 2, bottom + 36}, "middle", axis.label);
}

/// A bar's stack; on a log scale, where stacks lie, one bar of the sum.
void draw_bar(Canvas& canvas, const Bars& bars, const Bar& bar, const AxisScale& scale, double top) {
  double sum = 0;
  const bool log = bars.value.scale == ScaleKind::kLog;
  for (size_t i = 0; i < bar.parts.size(); ++i) {
    const double from = log ? scale.position(scale.low()) : scale.position(sum);
    sum += bar.parts[i];
    if (bar.parts[i] <= 0) continue;
    const double to = scale.position(sum);
    canvas.rectangle({from, top}, {std::max(0.0, to - from), kBar},
                     "f " + Style(bars.first_style + static_cast<int>(i)).colour(),
                     fmt::format("{}, {}: {}", bar.label, bars.parts[i], format(bar.parts[i], bars.value.unit)));
  }
  double right = scale.position(sum);
  if (bar.spread && bar.spread->low > 0 && bar.spread->low < bar.spread->high) {
    const double from = scale.position(bar.spread->low), to = scale.position(bar.spread->high);
    const double middle = top + kBar / 2;
    canvas.line({from, middle}, {to, middle}, "w");
    for (const double end : {from, to}) canvas.line({end, middle - 4}, {end, middle + 4}, "w");
    right = std::max(right, to);
  }
  if (sum > 0) canvas.text({right + 5, top + 13}, "start", format(sum, bars.value.unit), "t small");
}

/// Of `most` equal stretches, whether at least half of each is true.
std::vector<bool> at_most(const std::vector<bool>& bits, size_t most) {
  if (bits.size() <= most) return bits;
  std::vector<bool> few;
  for (size_t i = 0; i < most; ++i) {
    const auto from = bits.begin() + static_cast<int64_t>(i * bits.size() / most);
    const auto to = bits.begin() + static_cast<int64_t>((i + 1) * bits.size() / most);
    few.push_back(2 * std::count(from, to, true) >= to - from);
  }
  return few;
}

}  // namespace

std::vector<size_t> thinned(size_t n, size_t most) {
  std::vector<size_t> positions;
  if (n <= most) {
    for (size_t i = 0; i < n; ++i) positions.push_back(i);
    return positions;
  }
  for (size_t i = 0; i < most; ++i) positions.push_back(i * (n - 1) / (most - 1));
  return positions;
}

std::string draw(const Plot& plot) {
  return Drawing(plot).draw();
}

double total(const Bar& bar) {
  double sum = 0;
  for (const double part : bar.parts) sum += part;
  return sum;
}

std::string draw(const Bars& bars) {
  const double bottom = kBarsTop + kRow * static_cast<double>(bars.bars.size());
  Canvas canvas(kWidth, bottom + 46);
  std::vector<double> totals;
  for (const auto& bar : bars.bars) {
    totals.push_back(total(bar));
    if (bar.spread) totals.push_back(bar.spread->high);
  }
  Axis from_zero = bars.value;
  from_zero.from_zero = true;
  const AxisScale scale(from_zero, totals, kBarsLeft, kWidth - kBarsRight);
  axis_below(canvas, bars.value, scale, bottom);
  for (size_t i = 0; i < bars.bars.size(); ++i) {
    const double top = kBarsTop + kRow * static_cast<double>(i) + (kRow - kBar) / 2;
    canvas.text({kBarsLeft - 8, top + 13}, "end", shortened(bars.bars[i].label, kLongest));
    draw_bar(canvas, bars, bars.bars[i], scale, top);
  }
  return canvas.finish(bars.value.label);
}

std::string draw(const Axis& value, const std::vector<Estimate>& estimates) {
  const double bottom = kBarsTop + kRow * static_cast<double>(estimates.size());
  Canvas canvas(kWidth, bottom + 46);
  std::vector<double> ends{0};
  for (const auto& one : estimates) ends.insert(ends.end(), {one.value, one.interval.low, one.interval.high});
  const AxisScale scale(value, ends, kBarsLeft, kWidth - kBarsRight);
  axis_below(canvas, value, scale, bottom);
  canvas.line({scale.position(0), kBarsTop}, {scale.position(0), bottom}, "a");
  for (size_t row = 0; row < estimates.size(); ++row) {
    const auto& [label, style, at, interval] = estimates[row];
    const double middle = kBarsTop + kRow * (static_cast<double>(row) + 0.5);
    canvas.text({kBarsLeft - 8, middle + 4}, "end", shortened(label, kLongest));
    const std::string whisker = "w " + Style(style).colour();
    for (const double end : {interval.low, interval.high}) {
      canvas.line({scale.position(at), middle}, {scale.position(end), middle}, whisker);
      canvas.line({scale.position(end), middle - 4}, {scale.position(end), middle + 4}, whisker);
    }
    canvas.mark({scale.position(at), middle}, Style(style), fmt::format("{}: {:.3g}", label, at));
  }
  return canvas.finish(value.label);
}

std::string draw_strips(const std::string& title, const std::vector<Strip>& strips) {
  constexpr double kStrip = 16, kCell = 12, kFirst = kBarsTop + 20;
  size_t longest = 1;
  for (const auto& strip : strips) longest = std::max(longest, std::min(strip.bits.size(), kMostCells));
  Canvas canvas(kWidth, kFirst + kStrip * static_cast<double>(strips.size()) + 4);
  canvas.text({kEdge, kBarsTop + 8}, "start", title);
  for (size_t row = 0; row < strips.size(); ++row) {
    const auto bits = at_most(strips[row].bits, kMostCells);
    const double top = kFirst + kStrip * static_cast<double>(row);
    const double width = std::min(kCell, (kWidth - kBarsLeft - kBarsRight) / static_cast<double>(longest));
    canvas.text({kBarsLeft - 8, top + 11}, "end", shortened(strips[row].label, kLongest), "t small");
    for (size_t i = 0; i < bits.size(); ++i) {
      canvas.rectangle({kBarsLeft + width * static_cast<double>(i), top}, {width, kStrip - 3}, bits[i] ? "on" : "off",
                       "");
    }
    const auto& all = strips[row].bits;
    const auto kept = std::count(all.begin(), all.end(), true);
    canvas.text({kWidth - kBarsRight + 6, top + 11}, "start", fmt::format("{}/{}", kept, all.size()), "t small");
  }
  return canvas.finish("kept and removed units of " + title);
}

namespace {

/// The class of a share's shade: a fifth of the colour for as much as a fifth.
std::string shade_of(double share) {
  const int fifths = static_cast<int>(std::ceil(5 * share));
  return fifths >= 5 ? "" : fmt::format(" q{}", fifths);
}

}  // namespace

std::string draw_matrix(const std::string& title, const std::vector<std::string>& names,
                        const std::vector<std::vector<double>>& shares) {
  constexpr double kFirst = kBarsTop + 20, kWritten = 24;
  const auto count = static_cast<double>(names.size());
  const double cell = std::min(40.0, (kWidth - kBarsLeft - kBarsRight) / count);
  Canvas canvas(kWidth, kFirst + cell * count + 20);
  canvas.text({kEdge, kBarsTop + 8}, "start", title);
  for (size_t row = 0; row < names.size(); ++row) {
    const double top = kFirst + cell * static_cast<double>(row);
    canvas.text({kBarsLeft - 8, top + cell / 2 + 4}, "end", shortened(names[row], kLongest), "t small");
    for (size_t column = 0; column < names.size(); ++column) {
      const double share = std::clamp(shares[row][column], 0.0, 1.0),
                   left = kBarsLeft + cell * static_cast<double>(column);
      const auto percent = format(share, Unit::kShare, 2);
      canvas.rectangle({left, top}, {cell - 1, cell - 1},
                       share > 0 ? (row == column ? "f s0" : "f s1") + shade_of(share) : "off",
                       fmt::format("{} taken for {}: {}", names[row], names[column], percent));
      if (cell < kWritten || share < 0.005) continue;
      canvas.text({left + cell / 2, top + cell / 2 + 4}, "middle", fmt::format("{:.0f}", 100 * share), "t small");
    }
    canvas.text({kBarsLeft + cell * (static_cast<double>(row) + 0.5), kFirst + cell * count + 14}, "middle",
                shortened(names[row], static_cast<size_t>(std::max(1.0, cell / 7))), "t small");
  }
  return canvas.finish("answers of " + title);
}

std::string draw_pictures(const std::string& title, const std::vector<Picture>& pictures) {
  constexpr size_t kInRow = 6, kLetters = 15;
  constexpr double kStep = 104, kSide = 64, kHeightOfRow = 106, kFirst = kBarsTop + 20;
  const size_t rows = (pictures.size() + kInRow - 1) / kInRow;
  Canvas canvas(kWidth, kFirst + kHeightOfRow * static_cast<double>(rows));
  canvas.text({kEdge, kBarsTop + 8}, "start", title);
  for (size_t i = 0; i < pictures.size(); ++i) {
    const double left = kEdge + kStep * static_cast<double>(i % kInRow);
    const double top = kFirst + kHeightOfRow * static_cast<double>(i / kInRow);
    canvas.picture({left, top}, {kSide, kSide}, pictures[i].png, pictures[i].hint);
    canvas.text({left, top + kSide + 14}, "start", shortened(pictures[i].first, kLetters), "t small");
    canvas.text({left, top + kSide + 28}, "start", shortened(pictures[i].second, kLetters), "t small");
  }
  return canvas.finish("images of " + title);
}

std::string draw_rows(const Axis& time, const std::vector<std::string>& rows, const std::vector<Stretch>& stretches) {
  const double bottom = kBarsTop + kRow * static_cast<double>(rows.size());
  Canvas canvas(kWidth, bottom + 46);
  std::vector<double> ends;
  for (const auto& stretch : stretches) ends.insert(ends.end(), {stretch.begin, stretch.begin + stretch.length});
  const AxisScale scale(time, ends, kBarsLeft, kWidth - kBarsRight);
  axis_below(canvas, time, scale, bottom);
  for (size_t row = 0; row < rows.size(); ++row) {
    canvas.text({kBarsLeft - 8, kBarsTop + kRow * static_cast<double>(row) + 17}, "end",
                shortened(rows[row], kLongest));
  }
  for (const auto& stretch : stretches) {
    const double from = scale.position(stretch.begin), to = scale.position(stretch.begin + stretch.length);
    canvas.rectangle({from, kBarsTop + kRow * static_cast<double>(stretch.row) + (kRow - kBar) / 2}, {to - from, kBar},
                     "f " + Style(stretch.style).colour(), stretch.hint);
  }
  return canvas.finish(time.label);
}

}  // namespace prunex::report
