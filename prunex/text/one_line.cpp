#include "prunex/text/one_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

namespace prunex::text {
namespace {

constexpr size_t kLongestTyped = 64;  // nobody mistypes more, and the distance is quadratic

std::string folded(std::string_view word) {
  std::string text(word);
  for (char& c : text) c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

/// Characters added, left out, replaced, or swapped with their neighbour.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

/// A third of the letters, dashes in front aside.
size_t mistakes_allowed(const std::string& word) {
  const size_t dashes = std::min(word.find_first_not_of('-'), word.size());
  return std::max<size_t>(1, (word.size() - dashes) / 3);
}

}  // namespace

std::string one_line(std::string_view words, size_t most) {
  std::string line;
  for (const char byte : words) {
    const auto code = static_cast<unsigned char>(byte);
    const bool begins_a_character = (code & 0xC0) != 0x80;
    if (line.size() >= most && begins_a_character) return line + "...";
    if (byte == '\n') {
      line += "\\n";
    } else if (code < 0x20 || code == 0x7F) {
      line += fmt::format("\\x{:02x}", code);
    } else {
      line += byte;
    }
  }
  return line;
}

std::string shell_word(std::string_view text) {
  const auto harmless = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || std::string("_-./,:=+@%").find(c) != std::string::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), harmless)) return std::string(text);
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') word += "'\\'";  // out of the quotes and back
    word += c;
  }
  return word + "'";
}

bool is_utf8(std::string_view words) {
  try {
    (void)nlohmann::json(words).dump();
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

std::string closest(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string typed = folded(word);
  if (typed.find_first_not_of('-') == std::string::npos || typed.size() > kLongestTyped) return "";
  size_t least = mistakes_allowed(typed) + 1;
  std::string best;
  std::vector<std::string> begun;
  for (const auto& candidate : candidates) {
    const std::string name = folded(candidate);
    if (name.starts_with(typed)) begun.push_back(candidate);
    if (name.size() > kLongestTyped) continue;
    const size_t mistakes = distance(typed, name);
    if (mistakes >= least || mistakes >= name.size()) continue;
    least = mistakes;
    best = candidate;
  }
  return best.empty() && begun.size() == 1 ? begun.front() : best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string candidate = closest(word, candidates);
  return candidate.empty() ? "" : fmt::format("; did you mean '{}'?", candidate);
}

}  // namespace prunex::text
