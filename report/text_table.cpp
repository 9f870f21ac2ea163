#include "report/text_table.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include "report/clean_text.h"

namespace prunex::report {
namespace {

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
