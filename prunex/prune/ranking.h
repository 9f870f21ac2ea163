// The order in which units go.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "prunex/prune/scores.h"

namespace prunex::prune {

/// A unit that may go.
struct Candidate {
  double score = 0;
  size_t group = 0;
  int64_t unit = 0;
};

/// Groups whose units are compared.
struct RankedScope {
  std::vector<Candidate> order;  ///< lowest first; of equal scores the earlier group, then the earlier unit
  int64_t units = 0;             ///< of all groups of the scope, in the whole network
  int64_t alive = 0;             ///< of those, still there
  double ratio = -1;             ///< of its own; below 0: the target's
};

using Ranking = std::vector<RankedScope>;

/// Sorts, and leaves out what a group cannot lose: after `spare[group]` removals its other units stay.
void finish(RankedScope& scope, const std::vector<int64_t>& spare);

/// The groups of all candidates of scopes without a ratio of their own, such that scopes shrink at an equal pace.
std::vector<size_t> merged(const Ranking& ranking);

}  // namespace prunex::prune
