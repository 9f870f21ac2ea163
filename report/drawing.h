// From values to places on paper, and drawings as SVG. Colours come from the page's style sheet: class s0, s1, ... sets
// the current colour.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/format.h"

namespace prunex::report {

enum class ScaleKind { kLinear, kLog };

/// A range of values; empty until something positive (log) or finite (linear) is added.
class Range {
 public:
  explicit Range(ScaleKind kind = ScaleKind::kLinear) : kind_(kind) {}
  /// Values that cannot be shown, at or near infinity, or not positive on a log scale, are left out.
  void add(double value);
  bool shows(double value) const;
  bool empty() const { return low_ > high_; }
  double low() const { return low_; }
  double high() const { return high_; }

 private:
  ScaleKind kind_;
  double low_ = 1, high_ = 0;
};

/// Maps values onto pixels and knows where the ticks are.
class Scale {
 public:
  /// Widens the range to whole ticks (linear), or to steps of 1, 2, 5 (log). An empty range becomes 0..1 or 1..10.
  Scale(ScaleKind kind, const Range& range, double from_pixel, double to_pixel);

  double position(double value) const;
  const std::vector<double>& ticks() const { return ticks_; }
  double low() const { return low_; }
  double high() const { return high_; }

 private:
  ScaleKind kind_;
  double low_ = 0, high_ = 1, from_, to_;
  std::vector<double> ticks_;
};

struct Axis {
  std::string label;
  Unit unit = Unit::kNumber;
  ScaleKind scale = ScaleKind::kLinear;
  bool from_zero = false;          ///< linear only: the axis begins at 0 even if the data do not
  std::vector<double> marks = {};  ///< ticks at these values instead of round ones
};

/// An axis over given values. All ticks of a time, or of evenly spaced numbers, are in one unit, chosen by the largest.
class AxisScale {
 public:
  AxisScale(const Axis& axis, const std::vector<double>& values, double from_pixel, double to_pixel);

  /// Whether a value has a place: finite, and positive on a log scale.
  bool shows(double value) const;
  /// In pixels; values beyond the ends are put there.
  double position(double value) const;
  double low() const { return scale_.low() * size_; }
  double high() const { return scale_.high() * size_; }

  struct Tick {
    double at = 0;  ///< pixels
    std::string text;
  };
  std::vector<Tick> ticks() const;

 private:
  Axis axis_;
  double size_;  // of the unit in which ticks are round
  std::string suffix_;
  Scale scale_;
};

struct Pixel {
  double x = 0, y = 0;
};

/// How a series looks: colour, dashes and marks differ, so that a reader needs only one of them.
class Style {
 public:
  static constexpr int kColours = 7;
  static constexpr int kHighlights = 6;  ///< runs that have a colour in one plot
  static constexpr int kNeutral = -1;    ///< the colour of text, dotted
  static constexpr int kOther = -2;      ///< grey: one of many
  explicit Style(int number = 0) : number_(number) {}
  /// Its CSS class: s0 … s6, n or o.
  std::string colour() const;
  /// Value of stroke-dasharray; empty for a solid line.
  std::string_view dashes() const;
  /// 0 circle, 1 square, 2 triangle, 3 diamond, 4 cross.
  int mark() const { return number_ < 0 ? 0 : number_ % 5; }

 private:
  int number_;
};

class Canvas {
 public:
  Canvas(double width, double height) : width_(width), height_(height) {}

  void line(Pixel from, Pixel to, std::string_view css_class);
  void path(const std::vector<Pixel>& points, const Style& style);
  void area(const std::vector<Pixel>& outline, const Style& style);
  /// `hint` is shown where a pointer rests; may be empty.
  void rectangle(Pixel corner, Pixel size, std::string_view css_class, std::string_view hint);
  /// A PNG in base64; its pixels stay squares.
  void picture(Pixel corner, Pixel size, std::string_view png, std::string_view hint);
  void mark(Pixel at, const Style& style, std::string_view hint);
  /// `anchor`: start, middle or end.
  void text(Pixel at, std::string_view anchor, std::string_view text, std::string_view css_class = "t");
  /// Reads upwards, centred.
  void upright_text(Pixel at, std::string_view text);

  /// The <svg> element; `label` says to a screen reader what is drawn; none: an ornament.
  std::string finish(std::string_view label) const;

 private:
  double width_, height_;
  std::string body_;
};

/// A line, a mark or a filled box of that style for a legend.
std::string legend_line(const Style& style);
std::string legend_box(const Style& style);

}  // namespace prunex::report
