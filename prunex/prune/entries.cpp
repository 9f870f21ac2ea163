#include "prunex/prune/entries.h"

#include <algorithm>

namespace prunex::prune {
namespace {

using sparsity::Group;
using sparsity::Slice;

/// Torch-Pruning repeats the columns of a grouped convolution once per group.
double repeats(const Slice& slice, const WeightRole& role) {
  const bool input = role.out_axis >= 0 && slice.axis != role.out_axis;
  return input ? static_cast<double>(role.groups) : 1.0;
}

void scale(UnitScores& scores, double factor) {
  for (double& score : scores) score *= factor;
}

}  // namespace

Entries::Entries(const ImportanceOptions& options, const program::Graph& graph)
    : options_(options), roles_(weight_roles(graph)) {}

const WeightRole& Entries::role(const std::string& tensor) const {
  static const WeightRole kNone;
  const auto found = roles_.find(tensor);
  return found == roles_.end() ? kNone : found->second;
}

bool Entries::counts(const WeightRole& role) const {
  if (role.kind == WeightKind::kBias) return options_.bias && counts(role.layer);
  return counts(role.kind);
}

bool Entries::counts(WeightKind kind) const {
  switch (kind) {
    case WeightKind::kConvolution:
    case WeightKind::kLinear:
    case WeightKind::kBatchNorm:
    case WeightKind::kLayerNorm:
      return true;
    case WeightKind::kDepthwise:
    case WeightKind::kRecurrent:
    case WeightKind::kEmbedding:
    case WeightKind::kOtherNorm:
      return !options_.tp_compat;
    case WeightKind::kBias:
    case WeightKind::kOther:
      return false;
  }
  return false;
}

/// The rows of the layer that the group is named after, or of any other that makes its units.
const Slice* Entries::maker(const Group& group) const {
  const Slice* any = nullptr;
  for (const Slice& slice : group.slices) {
    if (!makes_units(role(slice.tensor), slice)) continue;
    if (layer_of(slice.tensor) == group.name.substr(0, group.name.find_first_of("[#"))) return &slice;
    if (any == nullptr) any = &slice;
  }
  return any;
}

double Entries::positions_per_unit(const Group& group) const {
  const Slice* slice = maker(group);
  if (slice == nullptr || slice->index.empty()) return 1;
  return static_cast<double>(slice->index.size()) / static_cast<double>(group.size);
}

UnitScores Entries::score(const Group& group, const LocalScores& local) const {
  const Slice* made_by = maker(group);
  std::vector<UnitScores> entries;
  size_t first = 0;
  for (const Slice& slice : group.slices) {
    const WeightRole& part = role(slice.tensor);
    const auto positions = local(slice, part);
    if (!positions) continue;
    if (&slice == made_by) first = entries.size();
    entries.push_back(by_unit(slice, group.size, *positions));
    if (options_.tp_compat) scale(entries.back(), repeats(slice, part));
  }
  if (entries.empty()) return {};
  UnitScores scores = reduce(entries, options_.reduction, first);
  if (options_.tp_compat) scale(scores, 1 / positions_per_unit(group));
  normalize(scores, options_.normalizer);
  return scores;
}

}  // namespace prunex::prune
