#include "report/drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "report/format.h"

namespace prunex::report {
namespace {

constexpr int kSteps = 5;
constexpr int kFewDigits = 3;
constexpr double kMost = 1e300;  // beyond it the width of a range might not be finite
constexpr double kMostLogTicks = 8;

double power_of_ten(double value) {
  return std::pow(10.0, std::floor(std::log10(value) + 1e-9));
}

/// The largest of 1, 2, 5 x 10^n that is not above the value; or the smallest not below.
double round_down(double value) {
  const double power = power_of_ten(value), lead = value / power * (1 + 1e-9);
  return (lead >= 5 ? 5 : lead >= 2 ? 2 : 1) * power;
}
double round_up(double value) {
  const double power = power_of_ten(value), lead = value / power * (1 - 1e-9);
  return (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10) * power;
}

std::vector<double> linear_ticks(double low, double high, double step) {
  std::vector<double> ticks;
  const auto count = std::lround((high - low) / step);
  for (long i = 0; i <= count; ++i) ticks.push_back(low + static_cast<double>(i) * step);
  for (double& tick : ticks) tick = std::abs(tick) < step * 1e-9 ? 0 : tick;
  return ticks;
}

/// All of 1, 2, 5 x 10^n if they are few; else every power of ten, or every second, third, ...
std::vector<double> log_ticks(double low, double high) {
  std::vector<double> ticks;
  for (double power = power_of_ten(low); power <= high * (1 + 1e-9); power *= 10) {
    for (const double lead : {1.0, 2.0, 5.0}) {
      if (lead * power >= low * (1 - 1e-9) && lead * power <= high * (1 + 1e-9)) ticks.push_back(lead * power);
    }
  }
  if (static_cast<double>(ticks.size()) <= kMostLogTicks) return ticks;
  const double first = std::ceil(std::log10(low) - 1e-9), last = std::floor(std::log10(high) + 1e-9);
  const double step = std::max(1.0, std::ceil((last - first + 1) / kMostLogTicks));
  ticks.clear();
  for (double exponent = first; exponent <= last; exponent += step) ticks.push_back(std::pow(10.0, exponent));
  return ticks;
}

/// What ticks are multiples of.
struct TickUnit {
  double from;  // used if the largest value is so large
  double size;
  const char* suffix;
};
constexpr std::array<TickUnit, 4> kTickTimes{{{0, 1e-3, " ms"}, {1, 1, " s"}, {600, 60, " min"}, {10800, 3600, " h"}}};
constexpr std::array<TickUnit, 4> kTickCounts{{{0, 1, ""}, {1e4, 1e3, " k"}, {5e6, 1e6, " M"}, {5e9, 1e9, " G"}}};

/// Ticks of times, and of numbers that are evenly spaced, are all in one unit.
TickUnit unit_of(const Axis& axis, const std::vector<double>& values) {
  const bool counts = axis.unit == Unit::kNumber && axis.scale == ScaleKind::kLinear;
  if (axis.unit != Unit::kSeconds && !counts) return {0, 1, ""};
  const double largest = values.empty() ? 1 : *std::max_element(values.begin(), values.end());
  const auto& units = counts ? kTickCounts : kTickTimes;
  TickUnit chosen = units[0];
  for (const auto& unit : units) {
    if (largest >= unit.from) chosen = unit;
  }
  return chosen;
}

Range range_of(const Axis& axis, const std::vector<double>& values, double size) {
  Range range(axis.scale);
  if (axis.from_zero && axis.scale == ScaleKind::kLinear) range.add(0);
  for (const double value : values) range.add(value / size);
  return range;
}

/// Significant digits that ticks need: of the largest, down to those of the distance between two.
int digits_of(const std::vector<double>& ticks) {
  const double largest = std::max(std::abs(ticks.front()), std::abs(ticks.back()));
  const double step = ticks.size() > 1 ? ticks[1] - ticks[0] : largest;
  if (largest == 0 || step == 0) return kFewDigits;
  const auto place = [](double value) { return static_cast<int>(std::floor(std::log10(value) + 1e-9)); };
  return std::max(kFewDigits, 1 + place(largest) - place(step));
}

std::string coordinates(const std::vector<Pixel>& points) {
  std::string text;
  for (const auto& point : points) text += fmt::format("{}{:.1f},{:.1f}", text.empty() ? "" : " ", point.x, point.y);
  return text;
}

std::string title(std::string_view hint) {
  return hint.empty() ? "" : fmt::format("<title>{}</title>", escape(hint));
}

std::string dash_attribute(const Style& style) {
  return style.dashes().empty() ? "" : fmt::format(" stroke-dasharray=\"{}\"", style.dashes());
}

}  // namespace

bool Range::shows(double value) const {
  return std::abs(value) < kMost && (kind_ == ScaleKind::kLinear || value > 1 / kMost);
}

void Range::add(double value) {
  if (!shows(value)) return;
  if (std::abs(value) < 1 / kMost) value = 0;  // a part of it may be none
  const bool first = empty();
  low_ = first ? value : std::min(low_, value);
  high_ = first ? value : std::max(high_, value);
}

Scale::Scale(ScaleKind kind, const Range& range, double from_pixel, double to_pixel)
    : kind_(kind), from_(from_pixel), to_(to_pixel) {
  const bool log = kind == ScaleKind::kLog;
  low_ = range.empty() ? (log ? 1 : 0) : range.low();
  high_ = range.empty() ? (log ? 10 : 1) : range.high();
  if (log) {
    low_ = round_down(low_);
    high_ = round_up(high_);
    if (low_ == high_) high_ = 10 * low_;
    ticks_ = log_ticks(low_, high_);
    return;
  }
  if (low_ == high_) (low_ > 0 ? low_ : high_) = low_ == 0 ? 1 : 0;
  const double step = round_up((high_ - low_) / kSteps);
  low_ = std::floor(low_ / step + 1e-9) * step;
  high_ = std::ceil(high_ / step - 1e-9) * step;
  ticks_ = linear_ticks(low_, high_, step);
}

double Scale::position(double value) const {
  const bool log = kind_ == ScaleKind::kLog;
  const double low = log ? std::log(low_) : low_, high = log ? std::log(high_) : high_;
  const double at = log ? std::log(value) : value;
  return from_ + (at - low) / (high - low) * (to_ - from_);
}

AxisScale::AxisScale(const Axis& axis, const std::vector<double>& values, double from_pixel, double to_pixel)
    : axis_(axis),
      size_(unit_of(axis, values).size),
      suffix_(unit_of(axis, values).suffix),
      scale_(axis.scale, range_of(axis, values, size_), from_pixel, to_pixel) {}

bool AxisScale::shows(double value) const {
  return Range(axis_.scale).shows(value);
}

double AxisScale::position(double value) const {
  return scale_.position(std::clamp(value / size_, scale_.low(), scale_.high()));
}

std::vector<AxisScale::Tick> AxisScale::ticks() const {
  std::vector<Tick> ticks;
  for (const double mark : axis_.marks) ticks.push_back({position(mark), format(mark, axis_.unit)});
  if (!ticks.empty()) return ticks;
  const int digits = axis_.scale == ScaleKind::kLinear ? digits_of(scale_.ticks()) : kFewDigits;
  for (const double tick : scale_.ticks()) {
    const bool one_unit = axis_.unit == Unit::kSeconds || !suffix_.empty();
    const std::string text = tick == 0 && axis_.unit != Unit::kShare ? "0" : plain(tick, digits) + suffix_;
    ticks.push_back({scale_.position(tick), one_unit ? text : format(tick, axis_.unit, digits)});
  }
  return ticks;
}

std::string Style::colour() const {
  if (number_ == kNeutral) return "n";
  if (number_ == kOther) return "o";
  return fmt::format("s{}", number_ % kColours);
}

std::string_view Style::dashes() const {
  constexpr std::array<std::string_view, 4> kDashes{"", "7 3", "2 3", "9 3 2 3"};
  if (number_ == kNeutral) return kDashes[2];
  return number_ == kOther ? kDashes[0] : kDashes[static_cast<size_t>(number_) % kDashes.size()];
}

void Canvas::line(Pixel from, Pixel to, std::string_view css_class) {
  body_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>", from.x, from.y,
                       to.x, to.y, css_class);
}

void Canvas::path(const std::vector<Pixel>& points, const Style& style) {
  body_ += fmt::format("<polyline points=\"{}\" class=\"l {}\"{}/>\n", coordinates(points), style.colour(),
                       dash_attribute(style));
}

void Canvas::area(const std::vector<Pixel>& outline, const Style& style) {
  body_ += fmt::format("<polygon points=\"{}\" class=\"b {}\"/>\n", coordinates(outline), style.colour());
}

void Canvas::rectangle(Pixel corner, Pixel size, std::string_view css_class, std::string_view hint) {
  body_ += fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" class=\"{}\">{}</rect>\n",
                       corner.x, corner.y, size.x, size.y, css_class, title(hint));
}

void Canvas::picture(Pixel corner, Pixel size, std::string_view png, std::string_view hint) {
  body_ += fmt::format(
      "<image x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" class=\"px\" "
      "href=\"data:image/png;base64,{}\">{}</image>\n",
      corner.x, corner.y, size.x, size.y, png, title(hint));
}

void Canvas::mark(Pixel at, const Style& style, std::string_view hint) {
  constexpr std::array<std::string_view, 5> kShapes{"M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z", "M-3.6,-3.6h7.2v7.2h-7.2z",
                                                    "M0,-4.8L4.6,3.6H-4.6z", "M0,-5L5,0L0,5L-5,0z",
                                                    "M-5,-2h3v-3h4v3h3v4h-3v3h-4v-3h-3z"};
  body_ += fmt::format("<path transform=\"translate({:.1f},{:.1f})\" d=\"{}\" class=\"m {}\">{}</path>\n", at.x, at.y,
                       kShapes[static_cast<size_t>(style.mark())], style.colour(), title(hint));
}

void Canvas::text(Pixel at, std::string_view anchor, std::string_view text, std::string_view css_class) {
  body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>", at.x, at.y, anchor,
                       css_class, escape(text));
}

void Canvas::upright_text(Pixel at, std::string_view text) {
  body_ += fmt::format(
      "<text transform=\"translate({:.1f},{:.1f}) rotate(-90)\" text-anchor=\"middle\" class=\"t\">{}</text>", at.x,
      at.y, escape(text));
}

std::string Canvas::finish(std::string_view label) const {
  const std::string said =
      label.empty() ? "aria-hidden=\"true\"" : fmt::format("role=\"img\" aria-label=\"{}\"", escape(label));
  return fmt::format("<svg viewBox=\"0 0 {:g} {:g}\" {}>\n{}</svg>\n", width_, height_, said, body_);
}

std::string legend_line(const Style& style) {
  Canvas canvas(34, 12);
  canvas.path({{1, 6}, {33, 6}}, style);
  canvas.mark({17, 6}, style, "");
  return canvas.finish("");
}

std::string legend_box(const Style& style) {
  Canvas canvas(12, 12);
  canvas.rectangle({1, 1}, {10, 10}, "f " + style.colour(), "");
  return canvas.finish("");
}

}  // namespace prunex::report
