// Numbers as a reader wants them, alone and in rows and columns, and strings of files that others wrote, before they
// are shown.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace prunex::report {

/// One line of valid UTF-8: what is not valid becomes U+FFFD, tabs and ends of lines become spaces, other control
/// characters are left out.
std::string cleaned(std::string_view text);

/// Characters of valid UTF-8, not bytes.
size_t width_of(std::string_view text);

/// Valid UTF-8 of at most `most` >= 1 characters, the last of them "…" if some were left out.
std::string shortened(const std::string& text, size_t most);

/// Broken at spaces into lines of at most `width` characters; a longer word has a line of its own.
std::string wrapped(const std::string& text, size_t width);

enum class Unit {
  kNumber,   ///< 1.5 k, 2 M
  kShare,    ///< 0.5 as 50 %
  kBytes,    ///< powers of 1000: 1.5 MB
  kSeconds,  ///< 20 ms, 90 s, 10 min, 2.5 h
  kMbit,     ///< 400 Mbit/s, 10 Gbit/s
};

/// At most `digits` significant digits, no trailing zeros: 1230 with two is "1.2 k", 0 is "0".
std::string format(double value, Unit unit, int digits = 3);
/// A plain number with at most `digits` significant digits, no exponent between 1e-4 and 1e15.
std::string plain(double value, int digits);
/// "91.2 ± 1.3" to as many digits as the half width, at least 0, of its interval leaves; without that if it is 0.
std::string with_interval(double value, double half_width);
/// "91.24 ± 0.31 %" of a share and its half width, likewise.
std::string percent(double share, double half_width = 0);

/// For text and attribute values of HTML and SVG, whatever the text holds.
std::string escape(std::string_view text);

// Numbers in rows and columns.

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
