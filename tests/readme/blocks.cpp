#include "tests/readme/blocks.h"

#include <sstream>
#include <stdexcept>

namespace prunex::readme {
namespace {

bool is_fence(const std::string& line) {
  return line.starts_with("```");
}

/// The lines outside fenced blocks.
std::string prose_of(const std::string& markdown) {
  std::istringstream lines(markdown);
  std::string prose;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (is_fence(line)) {
      inside = !inside;
    } else if (!inside) {
      prose += line + "\n";
    }
  }
  return prose;
}

}  // namespace

std::vector<Block> blocks_of(const std::string& markdown) {
  std::istringstream lines(markdown);
  std::vector<Block> blocks;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (is_fence(line)) {
      inside = !inside;
      if (inside) blocks.push_back({line.substr(3), ""});
    } else if (inside) {
      blocks.back().text += line + "\n";
    }
  }
  return blocks;
}

std::vector<std::string> code_spans_of(const std::string& markdown) {
  const std::string prose = prose_of(markdown);
  std::vector<std::string> spans;
  for (size_t begin = prose.find('`'); begin != std::string::npos; begin = prose.find('`', begin)) {
    const size_t end = prose.find('`', begin + 1);
    if (end == std::string::npos) break;
    std::string span = prose.substr(begin + 1, end - begin - 1);
    for (char& letter : span) letter = letter == '\n' ? ' ' : letter;
    spans.push_back(std::move(span));
    begin = end + 1;
  }
  return spans;
}

std::vector<std::string> first_column(const std::string& markdown, const std::string& heading) {
  std::istringstream lines(markdown.substr(("\n" + markdown).find("\n" + heading + "\n")));
  std::vector<std::string> cells;
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line) && !line.starts_with("#")) {
    if (!line.starts_with("| `")) continue;
    cells.push_back(line.substr(3, line.find('`', 3) - 3));
  }
  return cells;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  size_t at = text.find(from);
  if (at == std::string::npos) throw std::runtime_error("'" + from + "' is not in\n" + text);
  for (; at != std::string::npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
  return text;
}

}  // namespace prunex::readme
