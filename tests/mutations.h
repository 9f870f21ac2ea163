// Damage to a file's bytes, the same in every run of a test.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace prunex::tests {

/// Cut short at `count` places, the empty text among them.
inline std::vector<std::string> truncations(const std::string& bytes, size_t count) {
  std::vector<std::string> cut;
  for (size_t i = 0; i < count; ++i) cut.push_back(bytes.substr(0, bytes.size() * i / count));
  return cut;
}

/// Each with another value in one byte, at places spread over all of the bytes.
inline std::vector<std::string> flips(const std::string& bytes, size_t count) {
  std::mt19937 random(1);
  std::vector<std::string> flipped(count, bytes);
  for (size_t i = 0; i < count; ++i) {
    flipped[i][bytes.size() * i / count] ^= static_cast<char>(1 + random() % 255);
  }
  return flipped;
}

/// One to three of: a piece removed, a piece repeated elsewhere, a number or a bracket in the place of a digit or a
/// bracket, a word of the formats put in.
inline std::vector<std::string> mutations(const std::string& bytes, size_t count) {
  static const std::vector<std::string> kWords{"18446744073709551615",
                                               "9223372036854775807",
                                               "-1",
                                               "0",
                                               "1e999",
                                               "1e300",
                                               "-9223372036854775808",
                                               "0.5",
                                               "null",
                                               "true",
                                               "[]",
                                               "{}",
                                               "\"\"",
                                               "[[[[",
                                               "}}}}",
                                               "\"x\":",
                                               ",",
                                               "\n",
                                               "\\",
                                               "'",
                                               "=",
                                               "#",
                                               std::string(1, '\0'),
                                               "\xff"};
  std::mt19937 random(1);
  const auto below = [&](size_t end) { return end == 0 ? 0 : random() % end; };
  std::vector<std::string> mutated(count, bytes);
  for (auto& text : mutated) {
    for (size_t edits = 1 + below(3); edits > 0; --edits) {
      const size_t place = below(text.size()), length = below(std::min<size_t>(text.size() - place, 40)) + 1;
      const auto& word = kWords[below(kWords.size())];
      const size_t digit = std::min(text.find_first_of("0123456789[]{}", place), text.size());
      switch (below(4)) {
        case 0:
          text.erase(place, length);
          break;
        case 1:
          text.insert(below(text.size()), text.substr(place, length));
          break;
        case 2:
          text.replace(digit, 1, word);
          break;
        default:
          text.insert(place, word);
      }
      if (text.empty()) break;
    }
  }
  return mutated;
}

/// So many of each kind.
inline std::vector<std::string> damaged(const std::string& bytes, size_t mutated, size_t cut, size_t flipped) {
  auto all = mutations(bytes, mutated);
  for (const auto& more : {truncations(bytes, cut), flips(bytes, flipped)}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

}  // namespace prunex::tests
