#include "report/text_table.h"

#include <algorithm>
#include <vector>

namespace prunex::report {
namespace {

/// Characters, not bytes, of UTF-8.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string padded(const std::string& text, size_t width, bool left) {
  const std::string space(width - width_of(text), ' ');
  return left ? text + space : space + text;
}

}  // namespace

std::string to_text(const Table& table) {
  std::vector<size_t> widths;
  for (const auto& column : table.columns) widths.push_back(width_of(column.name));
  for (const auto& row : table.rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], width_of(text_of(table.columns[i], row[i])));
    }
  }
  std::string text;
  const auto end_line = [&] {
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  };
  for (size_t i = 0; i < widths.size(); ++i) text += padded(table.columns[i].name, widths[i] + 2, i == 0);
  end_line();
  for (const auto& row : table.rows) {
    for (size_t i = 0; i < row.size(); ++i) text += padded(text_of(table.columns[i], row[i]), widths[i] + 2, i == 0);
    end_line();
  }
  return text;
}

}  // namespace prunex::report
