#include "tools/prunex/columns.h"

#include <algorithm>

namespace prunex::tools {

std::string wrap(std::string_view text, size_t used, size_t indent, size_t width) {
  std::string lines;
  size_t column = used;
  bool first_in_line = true;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    if (!first_in_line && column + 1 + word.size() > width) {
      lines += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (!first_in_line) {
      lines += ' ';
      ++column;
    }
    lines += word;
    column += word.size();
    first_in_line = false;
  }
  return lines;
}

std::string shorten(const std::string& text, size_t width) {
  if (text.size() <= width) return text;
  const size_t front = (width - 1) / 2, back = width - 1 - front;
  return text.substr(0, front) + "…" + text.substr(text.size() - back);
}

}  // namespace prunex::tools
