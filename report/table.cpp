#include "report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

}  // namespace prunex::report
