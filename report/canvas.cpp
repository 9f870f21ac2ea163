#include "report/canvas.h"

#include <fmt/format.h>

#include <array>

#include "report/format.h"

namespace prunex::report {
namespace {

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
