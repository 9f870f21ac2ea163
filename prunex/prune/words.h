// Words that options are told, and what they mean.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace prunex::prune {

template <class T>
using Words = std::vector<std::pair<std::string, T>>;

template <class T>
std::vector<std::string> names_of(const Words<T>& words) {
  std::vector<std::string> names;
  for (const auto& [word, meaning] : words) names.push_back(word);
  return names;
}

/// Throws a std::invalid_argument that names the option and lists the words.
[[noreturn]] void refuse_word(const std::string& word, const std::vector<std::string>& names, const char* option);

/// An unknown word is refused.
template <class T>
const T& meaning_of(const std::string& word, const Words<T>& words, const char* option) {
  for (const auto& [candidate, meaning] : words) {
    if (candidate == word) return meaning;
  }
  refuse_word(word, names_of(words), option);
}

}  // namespace prunex::prune
