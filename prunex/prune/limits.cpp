#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "prunex/prune/plan.h"
#include "prunex/sparsity/projection.h"

namespace prunex::prune {
namespace {

using channels::Analysis;
using channels::DependencyGroup;
using sparsity::Slice;

bool matches(const std::string& pattern, const std::string& group, const Limit& limit) {
  const auto fits = [&](const std::string& name) {
    return pattern == name || ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  };
  return fits(group) || std::any_of(limit.layers.begin(), limit.layers.end(), fits);
}

Limit limit_of(const DependencyGroup& group, const Analysis& analysis, const LimitOptions& options) {
  Limit limit{.layers = {}, .multiple = multiple_of(group, analysis, options.round_to), .scope = {}, .reason = {}};
  std::vector<std::string> parts;
  for (const Slice& slice : group.slices) {
    const auto* role = analysis.role(slice.tensor);
    if (role == nullptr) continue;
    const bool makes = makes_units(*role, slice);
    const std::string layer = channels::layer_of(slice.tensor);
    const bool known = !limit.layers.empty() && limit.layers.back() == layer;
    if (makes && !known) limit.layers.push_back(layer);
    parts.push_back(fmt::format("{} {}", name_of(role->kind), makes ? "out" : "in"));
  }
  std::sort(parts.begin(), parts.end());
  limit.scope = fmt::format("{}", fmt::join(parts, ", "));
  const auto removable = static_cast<int64_t>(std::floor(options.max_ratio * static_cast<double>(group.size) + 1e-9));
  limit.floor = std::max({int64_t{1}, std::min(limit.multiple, group.size), group.size - removable});
  if (!group.prunable) limit.reason = group.reason;
  return limit;
}

void check_share(double share, const std::string& option) {
  if (!(share >= 0 && share <= 1)) {
    throw std::invalid_argument(fmt::format("{} {}: wanted a share of units in [0, 1]", option, share));
  }
}

/// Calls `apply` for the groups that the pattern matches; at least one.
template <class Apply>
void for_matches(const std::string& option, const std::string& pattern, const std::vector<DependencyGroup>& groups,
                 std::vector<Limit>& limits, const Apply& apply) {
  bool found = false;
  for (size_t group = 0; group < groups.size(); ++group) {
    if (!matches(pattern, groups[group].name, limits[group])) continue;
    found = true;
    apply(limits[group]);
  }
  if (!found) throw std::invalid_argument(fmt::format("{} {}: no group or layer has such a name", option, pattern));
}

}  // namespace

int64_t multiple_of(const DependencyGroup& group, const Analysis& analysis, int64_t round_to) {
  if (round_to == kHardwareMultiple) round_to = sparsity::hardware_multiple(group.size);
  int64_t multiple = 1;
  for (const Slice& slice : group.slices) {
    const auto* role = analysis.role(slice.tensor);
    const bool makes = role != nullptr && makes_units(*role, slice);
    if (role == nullptr || !(makes || role->reads(slice.axis))) continue;
    const int64_t channels = slice.positions_per_unit(group.size) * (makes ? 1 : role->groups);
    multiple = std::lcm(multiple, round_to / std::gcd(round_to, channels));
  }
  return multiple;
}

std::vector<Limit> limits_of(const Analysis& analysis, const LimitOptions& options) {
  if (options.round_to != kHardwareMultiple && (options.round_to < 1 || options.round_to > kMostMultiple)) {
    throw std::invalid_argument(
        fmt::format("`round_to`: got {}, wanted a number from 1 to {}", options.round_to, kMostMultiple));
  }
  check_share(options.max_ratio, "`max_ratio`");
  const auto& groups = analysis.groups();
  std::vector<Limit> limits;
  for (const DependencyGroup& group : groups) limits.push_back(limit_of(group, analysis, options));
  for (const LayerRatio& own : options.ratios) {
    check_share(own.ratio, "`layer_ratio` " + own.pattern);
    for_matches("`layer_ratio`", own.pattern, groups, limits, [&](Limit& limit) { limit.ratio = own.ratio; });
  }
  for (const std::string& pattern : options.ignore) {
    for_matches("`ignore`", pattern, groups, limits, [&](Limit& limit) {
      if (limit.reason.empty()) limit.reason = fmt::format("`ignore` {}", pattern);
    });
  }
  for (const auto& [name, why] : options.whole) {
    const auto group =
        std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.name == name; });
    if (group == groups.end()) throw std::invalid_argument(fmt::format("`whole`: there is no group {}", name));
    Limit& limit = limits[static_cast<size_t>(group - groups.begin())];
    if (limit.reason.empty()) limit.reason = why;
  }
  return limits;
}

std::set<std::string> ignored_groups(const Analysis& analysis, const std::vector<std::string>& patterns) {
  const auto& groups = analysis.groups();
  std::vector<Limit> limits;
  for (const DependencyGroup& group : groups) limits.push_back(limit_of(group, analysis, {}));
  std::set<std::string> ignored;
  for (const std::string& pattern : patterns) {
    for_matches("`ignore`", pattern, groups, limits,
                [&](const Limit& limit) { ignored.insert(groups[&limit - limits.data()].name); });
  }
  return ignored;
}

}  // namespace prunex::prune
