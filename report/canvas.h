// A drawing as SVG. Colours come from the page's style sheet: class s0, s1, ... sets the current colour.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace prunex::report {

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
