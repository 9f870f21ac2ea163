// Words that options are told, and what they mean.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "prunex/text/option.h"

namespace prunex::prune {

template <class T>
using Words = std::vector<std::pair<std::string, T>>;

template <class T>
std::vector<std::string> names_of(const Words<T>& words) {
  std::vector<std::string> names;
  for (const auto& [word, meaning] : words) names.push_back(word);
  return names;
}

/// Throws a std::invalid_argument that names the option and lists the words for one that is not among them.
template <class T>
const T& meaning_of(const std::string& word, const Words<T>& words, const char* option) {
  try {
    return words[text::index_of(word, names_of(words))].second;
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(std::string(option) + ": " + error.what());
  }
}

}  // namespace prunex::prune
