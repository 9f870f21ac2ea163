#include "report/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <vector>

namespace prunex::report {
namespace {

constexpr double kWidest = 100;  // the largest over the smallest number that are shown with equal decimals

int digits_before_point(double value) {
  return static_cast<int>(std::floor(std::log10(value))) + 1;
}

/// How many decimals show the largest number to `digits` digits and the smallest one to two; nothing for numbers that
/// need different ones.
std::optional<int> common_decimals(const Table& table, size_t column) {
  double least = 0, most = 0;
  bool whole = true;
  for (const auto& row : table.rows) {
    const double size = std::abs(row[column].number.value_or(0));
    if (!std::isfinite(size)) return std::nullopt;
    if (size == 0) continue;
    least = least == 0 ? size : std::min(least, size);
    most = std::max(most, size);
    whole = whole && size == std::round(size);
  }
  if (most == 0 || most > kWidest * least || least < 1e-4 || most >= 1e15) return std::nullopt;
  if (whole) return 0;
  return std::max({0, table.columns[column].digits - digits_before_point(most), 2 - digits_before_point(least)});
}

std::string text_of(const Column& column, const Cell& cell, std::optional<int> decimals) {
  if (!cell.number) return cell.word.empty() ? "–" : cell.word;
  if (column.unit) return format(*cell.number, *column.unit, column.digits);
  return decimals ? fmt::format("{:.{}f}", *cell.number, *decimals) : plain(*cell.number, column.digits);
}

constexpr size_t kGap = 2, kLeastName = 8;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// A table as texts.
class Grid {
 public:
  explicit Grid(const Table& table) {
    rows_ = texts_of(table);
    for (auto& row : rows_) {
      for (auto& text : row) text = cleaned(text);
    }
    for (size_t i = 0; i < table.columns.size(); ++i) {
      right_.push_back(is_right_aligned(table, i));
      widths_.push_back(0);
      for (const auto& row : rows_) widths_[i] = std::max(widths_[i], width_of(row[i]));
      names_.push_back(lines_of(wrapped(cleaned(table.columns[i].name), std::max<size_t>(widths_[i], kLeastName))));
      for (const auto& line : names_[i]) widths_[i] = std::max(widths_[i], width_of(line));
    }
  }

  size_t width() const {
    size_t sum = 0;
    for (const size_t width : widths_) sum += width + kGap;
    return sum < kGap ? 0 : sum - kGap;
  }

  void shorten_first(size_t most) {
    widths_[0] = std::min(widths_[0], most);
    for (auto& row : rows_) row[0] = shortened(row[0], most);
  }
  size_t first_width() const { return widths_[0]; }

  std::string text() const {
    size_t height = 0;
    for (const auto& lines : names_) height = std::max(height, lines.size());
    std::string text;
    for (size_t line = 0; line < height; ++line) {
      std::vector<std::string> cells;
      for (const auto& lines : names_) {
        const size_t above = height - lines.size();
        cells.push_back(line < above ? "" : lines[line - above]);
      }
      text += line_of(cells);
    }
    for (const auto& row : rows_) text += line_of(row);
    return text;
  }

 private:
  std::string line_of(const std::vector<std::string>& cells) const {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
      const size_t space = widths_[i] - std::min(widths_[i], width_of(cells[i]));
      line.append((i == 0 ? 0 : kGap) + (right_[i] ? space : 0), ' ');
      line += cells[i];
      line.append(right_[i] ? 0 : space, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return line + '\n';
  }

  std::vector<std::vector<std::string>> names_, rows_;
  std::vector<size_t> widths_;
  std::vector<bool> right_;
};

Table without_column(Table table, size_t column) {
  const auto at = static_cast<int64_t>(column);
  table.columns.erase(table.columns.begin() + at);
  for (auto& row : table.rows) row.erase(row.begin() + at);
  return table;
}

/// The last detail, else the last column.
size_t most_dispensable(const Table& table) {
  for (size_t i = table.columns.size() - 1; i > 0; --i) {
    if (table.columns[i].detail) return i;
  }
  return table.columns.size() - 1;
}

}  // namespace

Table without_empty_columns(const Table& table) {
  Table kept{{}, std::vector<std::vector<Cell>>(table.rows.size())};
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const bool any =
        std::any_of(table.rows.begin(), table.rows.end(), [&](const auto& row) { return !row[i].empty(); });
    if (!any && i > 0) continue;
    kept.columns.push_back(table.columns[i]);
    for (size_t row = 0; row < table.rows.size(); ++row) kept.rows[row].push_back(table.rows[row][i]);
  }
  return kept;
}

std::vector<std::vector<std::string>> texts_of(const Table& table) {
  std::vector<std::vector<std::string>> texts(table.rows.size());
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const auto decimals = table.columns[i].unit ? std::nullopt : common_decimals(table, i);
    for (size_t row = 0; row < table.rows.size(); ++row) {
      texts[row].push_back(text_of(table.columns[i], table.rows[row][i], decimals));
    }
  }
  return texts;
}

bool is_right_aligned(const Table& table, size_t column) {
  if (table.columns[column].right) return true;
  bool any = false;
  for (const auto& row : table.rows) {
    if (!row[column].word.empty()) return false;
    any = any || row[column].number;
  }
  return any;
}

std::string to_text(const Table& table, size_t width) {
  Table shown = without_empty_columns(table);
  Grid grid(shown);
  while (grid.width() > width && shown.columns.size() > 3) {
    const size_t column = most_dispensable(shown);
    shown = without_column(std::move(shown), column);
    grid = Grid(shown);
  }
  if (grid.width() > width) {
    const size_t others = grid.width() - grid.first_width();
    grid.shorten_first(std::max(kLeastName, width - std::min(width, others)));
  }
  return grid.text();
}

}  // namespace prunex::report
