// Reads the arguments of a node by name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "prunex/program/program.h"

namespace prunex::prune {

/// The tensor of an argument; kNoValue if it is left out or None.
program::ValueId tensor(const program::Node& node, const std::string& argument);

/// A literal integer; `otherwise` if it is left out or None.
int64_t integer(const program::Node& node, const std::string& argument, int64_t otherwise);

bool boolean(const program::Node& node, const std::string& argument, bool otherwise);

/// A list of literal integers, one alone included; empty if it is left out or None. Symbolic entries are -1.
std::vector<int64_t> integers(const program::Node& node, const std::string& argument);

/// Of an input with a batch: N, C, …
inline constexpr int64_t kChannelAxis = 1;

/// Axis of a tensor of `rank` axes, counted from the front.
inline int64_t from_front(int64_t axis, int64_t rank) {
  return axis < 0 ? axis + rank : axis;
}

}  // namespace prunex::prune
