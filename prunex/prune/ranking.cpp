#include "prunex/prune/ranking.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace prunex::prune {
namespace {

/// A candidate at its place in the common order.
struct Place {
  double gone = 0;  ///< share of the scope's units that are gone then
  const Candidate* candidate = nullptr;
};

auto key(const Candidate& candidate) {
  return std::make_tuple(candidate.score, candidate.group, candidate.unit);
}

}  // namespace

void finish(RankedScope& scope, const std::vector<int64_t>& spare) {
  std::sort(scope.order.begin(), scope.order.end(),
            [](const Candidate& a, const Candidate& b) { return key(a) < key(b); });
  std::map<size_t, int64_t> taken;
  std::erase_if(scope.order,
                [&](const Candidate& candidate) { return ++taken[candidate.group] > spare[candidate.group]; });
}

std::vector<size_t> merged(const Ranking& ranking) {
  std::vector<Place> places;
  for (const RankedScope& scope : ranking) {
    if (scope.ratio >= 0) continue;
    int64_t gone = scope.units - scope.alive;
    for (const Candidate& candidate : scope.order) {
      places.push_back({static_cast<double>(++gone) / static_cast<double>(scope.units), &candidate});
    }
  }
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return a.gone != b.gone ? a.gone < b.gone : key(*a.candidate) < key(*b.candidate);
  });
  std::vector<size_t> groups;
  for (const Place& place : places) groups.push_back(place.candidate->group);
  return groups;
}

}  // namespace prunex::prune
