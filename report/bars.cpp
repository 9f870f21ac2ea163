#include "report/bars.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/canvas.h"
#include "report/clean_text.h"

namespace prunex::report {
namespace {

constexpr double kWidth = 640, kLeft = 200, kRight = 66, kTop = 8, kRow = 26, kBar = 18;
constexpr size_t kLongest = 24, kMostCells = 256;

void axis_below(Canvas& canvas, const Axis& axis, const AxisScale& scale, double bottom) {
  for (const auto& [at, text] : scale.ticks()) {
    canvas.line({at, kTop}, {at, bottom}, "g");
    canvas.text({at, bottom + 16}, "middle", text);
  }
  canvas.text({(kLeft + kWidth - kRight) / 2, bottom + 36}, "middle", axis.label);
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

double total(const Bar& bar) {
  double sum = 0;
  for (const double part : bar.parts) sum += part;
  return sum;
}

std::string draw(const Bars& bars) {
  const double bottom = kTop + kRow * static_cast<double>(bars.bars.size());
  Canvas canvas(kWidth, bottom + 46);
  std::vector<double> totals;
  for (const auto& bar : bars.bars) {
    totals.push_back(total(bar));
    if (bar.spread) totals.push_back(bar.spread->high);
  }
  Axis from_zero = bars.value;
  from_zero.from_zero = true;
  const AxisScale scale(from_zero, totals, kLeft, kWidth - kRight);
  axis_below(canvas, bars.value, scale, bottom);
  for (size_t i = 0; i < bars.bars.size(); ++i) {
    const double top = kTop + kRow * static_cast<double>(i) + (kRow - kBar) / 2;
    canvas.text({kLeft - 8, top + 13}, "end", shortened(bars.bars[i].label, kLongest));
    draw_bar(canvas, bars, bars.bars[i], scale, top);
  }
  return canvas.finish(bars.value.label);
}

std::string draw_strips(const std::string& title, const std::vector<Strip>& strips) {
  constexpr double kHeight = 16, kCell = 12, kFirst = kTop + 20;
  size_t longest = 1;
  for (const auto& strip : strips) longest = std::max(longest, std::min(strip.bits.size(), kMostCells));
  Canvas canvas(kWidth, kFirst + kHeight * static_cast<double>(strips.size()) + 4);
  canvas.text({kLeft, kTop + 8}, "start", title);
  for (size_t row = 0; row < strips.size(); ++row) {
    const auto bits = at_most(strips[row].bits, kMostCells);
    const double top = kFirst + kHeight * static_cast<double>(row);
    const double width = std::min(kCell, (kWidth - kLeft - kRight) / static_cast<double>(longest));
    canvas.text({kLeft - 8, top + 11}, "end", shortened(strips[row].label, kLongest), "t small");
    for (size_t i = 0; i < bits.size(); ++i) {
      canvas.rectangle({kLeft + width * static_cast<double>(i), top}, {width, kHeight - 3}, bits[i] ? "on" : "off", "");
    }
    const auto& all = strips[row].bits;
    const auto kept = std::count(all.begin(), all.end(), true);
    canvas.text({kWidth - kRight + 6, top + 11}, "start", fmt::format("{}/{}", kept, all.size()), "t small");
  }
  return canvas.finish("kept and removed units of " + title);
}

std::string draw_rows(const Axis& time, const std::vector<std::string>& rows, const std::vector<Stretch>& stretches) {
  const double bottom = kTop + kRow * static_cast<double>(rows.size());
  Canvas canvas(kWidth, bottom + 46);
  std::vector<double> ends;
  for (const auto& stretch : stretches) ends.insert(ends.end(), {stretch.begin, stretch.begin + stretch.length});
  const AxisScale scale(time, ends, kLeft, kWidth - kRight);
  axis_below(canvas, time, scale, bottom);
  for (size_t row = 0; row < rows.size(); ++row) {
    canvas.text({kLeft - 8, kTop + kRow * static_cast<double>(row) + 17}, "end", shortened(rows[row], kLongest));
  }
  for (const auto& stretch : stretches) {
    const double from = scale.position(stretch.begin), to = scale.position(stretch.begin + stretch.length);
    canvas.rectangle({from, kTop + kRow * static_cast<double>(stretch.row) + (kRow - kBar) / 2}, {to - from, kBar},
                     "f " + Style(stretch.style).colour(), stretch.hint);
  }
  return canvas.finish(time.label);
}

}  // namespace prunex::report
