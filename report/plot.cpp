#include "report/plot.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/canvas.h"

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

}  // namespace prunex::report
