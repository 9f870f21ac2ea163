#include "prunex/channels/analysis.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "prunex/channels/masking.h"
#include "prunex/channels/search.h"

namespace prunex::channels {
namespace {

/// Compares runs of digits as numbers: "layer2.10" follows "layer2.9".
bool natural_less(const std::string& a, const std::string& b) {
  return ::strverscmp(a.c_str(), b.c_str()) < 0;
}

/// A well-mixed number per label vector: sums of them tell which vectors a set of units lies on, and how often.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// Where a set of united units ends up.
struct Place {
  int32_t group = -1;
  int32_t unit = -1;
};

/// Turns the sets of units into groups: sets that lie on the same axes equally often, frozen for the same reason.
class Collector {
 public:
  explicit Collector(const Axes& axes) : axes_(axes), members_(axes_.members()), places_(axes_.units().size()) {}

  std::vector<DependencyGroup> collect() {
    sign();
    for (const Origin& origin : sorted_origins()) place(origin);
    for (size_t group = 0; group < groups_.size(); ++group) describe(groups_[group], reasons_[group]);
    slice();
    std::vector<size_t> order(groups_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return rank(groups_[a]) < rank(groups_[b]); });
    removable_.assign(groups_.size(), -1);
    std::vector<DependencyGroup> sorted;
    int32_t next = 0;
    for (const size_t group : order) {
      if (groups_[group].prunable) removable_[group] = next++;
      sorted.push_back(std::move(groups_[group]));
    }
    return sorted;
  }

  /// By the root of each set: the position of its group among the prunable ones; -1: none.
  std::vector<int32_t> removable_of() const {
    std::vector<int32_t> positions;
    for (const Place& place : places_) positions.push_back(place.group < 0 ? -1 : removable_[place.group]);
    return positions;
  }

 private:
  static int rank(const DependencyGroup& group) {
    return group.kind == GroupKind::kInput ? 0 : group.kind == GroupKind::kOutput ? 2 : 1;
  }

  std::vector<Origin> sorted_origins() const {
    std::vector<Origin> origins = axes_.origins();
    std::stable_sort(origins.begin(), origins.end(),
                     [](const Origin& a, const Origin& b) { return natural_less(a.name, b.name); });
    return origins;
  }

  void sign() {
    signatures_.assign(axes_.units().size(), 0);
    uint64_t count = 0;
    for (const Labels& labels : axes_.all_labels()) {
      const uint64_t number = mix(++count);
      for (Unit unit : *labels) {
        if (unit != kFixed) signatures_[axes_.units().find(unit)] += number;
      }
    }
  }

  /// Gives the origin's units their groups, and units within them, in the order of their positions.
  void place(const Origin& origin) {
    std::set<int32_t> met;
    for (size_t position = 0; position < origin.labels->size(); ++position) {
      const Unit root = axes_.units().find((*origin.labels)[position]);
      Place& place = places_[root];
      if (place.group < 0) {
        place.group = group_of(root, origin, position);
        place.unit = static_cast<int32_t>(groups_[place.group].size++);
        joined_[place.group] = joined_[place.group] || axes_.units().has(root, Mark::kJoined);
      }
      met.insert(place.group);
    }
    for (int32_t group : met) layers_[group] += origin.layer;
  }

  int32_t group_of(Unit root, const Origin& origin, size_t position) {
    const int32_t reason = axes_.units().reason(root);
    const int32_t blur = axes_.units().blur(root);
    const auto [found, added] =
        by_key_.emplace(std::tuple(signatures_[root], reason, blur), static_cast<int32_t>(groups_.size()));
    if (added) {
      std::string name = position == 0 ? origin.name : fmt::format("{}[{}]", origin.name, position);
      for (int copy = 2; !names_.insert(name).second; ++copy) name = fmt::format("{}#{}", origin.name, copy);
      groups_.push_back({.name = std::move(name),
                         .size = 0,
                         .kind = GroupKind::kInner,
                         .prunable = false,
                         .reason = {},
                         .inexact = blur == kFree ? "" : axes_.reason(blur),
                         .slices = {}});
      layers_.push_back(0);
      joined_.push_back(false);
      reasons_.push_back(reason);
    }
    return found->second;
  }

  void describe(DependencyGroup& group, int32_t reason) const {
    const auto index = static_cast<size_t>(&group - groups_.data());
    group.kind = reason == kIsInput                     ? GroupKind::kInput
                 : reason == kIsOutput                  ? GroupKind::kOutput
                 : layers_[index] > 1 && joined_[index] ? GroupKind::kStream
                                                        : GroupKind::kInner;
    if (reason != kFree) {
      group.reason = axes_.reason(reason);
    } else if (group.size == 1) {
      group.reason = "it has a single unit";
    }
    group.prunable = group.reason.empty();
  }

  void slice() {
    std::unordered_map<const void*, std::vector<std::pair<int32_t, sparsity::Slice>>> made;
    for (const Member& member : members_) {
      auto [found, added] = made.try_emplace(member.labels.get());
      if (added) found->second = slices(*member.labels);
      for (const auto& [group, slice] : found->second) {
        groups_[group].slices.push_back({.tensor = member.tensor, .axis = member.axis, .index = slice.index});
      }
    }
    for (DependencyGroup& group : groups_) {
      std::sort(group.slices.begin(), group.slices.end(), [](const auto& a, const auto& b) {
        if (a.tensor != b.tensor) return natural_less(a.tensor, b.tensor);
        return a.axis < b.axis;
      });
    }
  }

  /// The share of each group in one axis; positions of a unit are ascending.
  std::vector<std::pair<int32_t, sparsity::Slice>> slices(const std::vector<Unit>& labels) const {
    std::vector<std::pair<int32_t, sparsity::Slice>> parts;
    std::unordered_map<int32_t, size_t> part_of;
    std::vector<std::vector<std::pair<int32_t, int64_t>>> owned;  // per part: (unit, position)
    for (size_t position = 0; position < labels.size(); ++position) {
      if (labels[position] == kFixed) continue;
      const Place& place = places_[axes_.units().find(labels[position])];
      const auto [found, added] = part_of.emplace(place.group, parts.size());
      if (added) {
        parts.emplace_back(place.group, sparsity::Slice{});
        owned.emplace_back();
      }
      owned[found->second].emplace_back(place.unit, static_cast<int64_t>(position));
    }
    for (size_t part = 0; part < parts.size(); ++part) {
      parts[part].second.index = index(owned[part], static_cast<int64_t>(labels.size()));
    }
    return parts;
  }

  /// Positions by unit; empty if unit c owns position c and nothing else lies on the axis.
  static std::vector<int64_t> index(std::vector<std::pair<int32_t, int64_t>>& owned, int64_t extent) {
    const auto identical = [](const auto& pair) { return pair.first == pair.second; };
    if (static_cast<int64_t>(owned.size()) == extent && std::all_of(owned.begin(), owned.end(), identical)) return {};
    std::sort(owned.begin(), owned.end());
    std::vector<int64_t> index;
    index.reserve(owned.size());
    for (const auto& [unit, position] : owned) index.push_back(position);
    return index;
  }

  const Axes& axes_;
  std::vector<Member> members_;
  std::vector<Place> places_;                                         // of the root of each set
  std::vector<uint64_t> signatures_;                                  // of the root of each set
  std::map<std::tuple<uint64_t, int32_t, int32_t>, int32_t> by_key_;  // signature, reason, blur
  std::set<std::string> names_;
  std::vector<DependencyGroup> groups_;
  std::vector<int> layers_;         // per group: those that make its channels
  std::vector<bool> joined_;        // per group: whether they meet otherwise than as factors
  std::vector<int32_t> reasons_;    // per group
  std::vector<int32_t> removable_;  // per group
};

}  // namespace

const char* name_of(GroupKind kind) {
  static constexpr const char* kNames[] = {"inner", "stream", "input", "output"};
  return kNames[static_cast<size_t>(kind)];
}

struct Analysis::State {
  State(std::shared_ptr<const Graph> held, GroupOptions how)
      : graph(std::move(held)), options(how), axes(label_axes(*graph, options)), roles(weight_roles(*graph)) {
    Collector collector(axes);
    groups = collector.collect();
    removable_of = collector.removable_of();
    note_masking(axes, roles, removable_of, groups);
    for (const DependencyGroup& group : groups) {
      if (group.prunable) removable.push_back({.name = group.name, .slices = group.slices, .size = group.size});
    }
  }

  std::shared_ptr<const Graph> graph;
  GroupOptions options;
  Axes axes;
  WeightRoles roles;
  std::vector<DependencyGroup> groups;
  std::vector<sparsity::Group> removable;
  std::vector<int32_t> removable_of;  // by the root of each set of units
};

Analysis::Analysis(const program::Program& program, GroupOptions options) {
  const auto held = std::make_shared<const program::Program>(program);
  state_ = std::make_shared<const State>(std::shared_ptr<const Graph>(held, &held->graph()), options);
}

Analysis::Analysis(const Graph& graph, GroupOptions options)
    : state_(std::make_shared<const State>(std::make_shared<const Graph>(graph), options)) {}

const Graph& Analysis::graph() const {
  return *state_->graph;
}

const GroupOptions& Analysis::options() const {
  return state_->options;
}

const Axes& Analysis::axes() const {
  return state_->axes;
}

const std::vector<DependencyGroup>& Analysis::groups() const {
  return state_->groups;
}

const std::vector<sparsity::Group>& Analysis::removable() const {
  return state_->removable;
}

int32_t Analysis::removable_of(Unit unit) const {
  return unit == kFixed ? -1 : state_->removable_of[state_->axes.units().find(unit)];
}

const WeightRoles& Analysis::roles() const {
  return state_->roles;
}

const WeightRole* Analysis::role(const std::string& tensor) const {
  const auto found = state_->roles.find(tensor);
  return found == state_->roles.end() ? nullptr : &found->second;
}

}  // namespace prunex::channels
