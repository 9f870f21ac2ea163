// Numbers in rows and columns.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/format.h"

namespace prunex::report {

struct Column {
  std::string name;
  std::optional<Unit> unit;  ///< of numbers; absent: plain, to `digits`
  int digits = 4;
  bool right = false;   ///< its words are numbers, such as 91.2 ± 0.3 %
  bool detail = false;  ///< may be left out where there is little room
};

/// Nothing, a number or a word.
struct Cell {
  Cell() = default;
  Cell(double value) : number(value) {}                 // NOLINT: tables are written as lists
  Cell(std::string value) : word(std::move(value)) {}   // NOLINT
  Cell(const char* value) : word(value) {}              // NOLINT
  Cell(std::optional<double> value) : number(value) {}  // NOLINT

  bool empty() const { return !number && word.empty(); }

  std::optional<double> number;
  std::string word;
  std::string link;          ///< a path relative to the page; empty: none
  std::optional<int> style;  ///< the line of a run in the plots, shown before its name
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;  ///< as long as `columns`
};

/// Without the columns in which every row is empty; the first stays.
Table without_empty_columns(const Table& table);

/// What the cells say; numbers of a column without unit have the same number of decimals.
std::vector<std::vector<std::string>> texts_of(const Table& table);

/// Whether a column holds numbers, and no words but those of a column that says they are.
bool is_right_aligned(const Table& table, size_t column);

/// Columns side by side, words to the left, numbers to the right, as wide as their longest cell; names of columns are
/// broken at spaces. Empty columns are left out, and so that lines have at most `width` characters: columns that are
/// details, then further ones from the right, at last the ends of the first column's words.
std::string to_text(const Table& table, size_t width);

}  // namespace prunex::report
