// How far each group may be pruned, and why not further.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "prunex/program/program.h"
#include "prunex/prune/groups.h"

namespace prunex::prune {

/// Of --round-to: no layer has as many channels.
inline constexpr int64_t kMostMultiple = 65'536;

/// What the name patterns of a plan say; patterns are the shell's (*, ?, [ab]) and match a group's name or a layer
/// whose outputs it prunes.
struct LayerRatio {
  std::string pattern;
  double ratio = 0;  ///< share of the units to remove
};

struct LimitOptions {
  /// Channels that are left are multiples of so many, where layers have as many; kHardwareMultiple: by group size.
  int64_t round_to = 1;
  double max_ratio = 1;  ///< the largest share of a group's units that may go
  std::vector<LayerRatio> ratios;
  std::vector<std::string> ignore;
};

inline constexpr int64_t kHardwareMultiple = 0;

struct Limit {
  std::vector<std::string> layers;  ///< whose outputs the group prunes
  int64_t floor = 1;                ///< units that stay in any case
  int64_t multiple = 1;             ///< what is left is a multiple of so many units
  std::optional<double> ratio;      ///< of its own
  std::string scope;                ///< equal for groups of one structure: kinds of layers and their sides
  std::string reason;               ///< why nothing may go; empty: something may
};

/// One for each of the groups. A pattern that matches no group, or a share outside [0, 1], is a std::invalid_argument.
std::vector<Limit> limits_of(const program::Graph& graph, const std::vector<DependencyGroup>& groups,
                             const LimitOptions& options);

}  // namespace prunex::prune
