// Groups as short words.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "prunex/channels/analysis.h"

namespace prunex::channels {

inline const DependencyGroup& find_group(const std::vector<DependencyGroup>& groups, const std::string& name) {
  for (const DependencyGroup& group : groups) {
    if (group.name == name) return group;
  }
  throw std::out_of_range("no group " + name);
}

/// "tensor:axis" and the index, if any: "fc.weight:1[0 2 4]".
inline std::vector<std::string> words(const DependencyGroup& group) {
  std::vector<std::string> words;
  for (const sparsity::Slice& slice : group.slices) {
    const std::string place = fmt::format("{}:{}", slice.tensor, slice.axis);
    words.push_back(slice.index.empty() ? place : fmt::format("{}[{}]", place, fmt::join(slice.index, " ")));
  }
  return words;
}

}  // namespace prunex::channels
