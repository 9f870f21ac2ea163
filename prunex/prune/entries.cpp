#include "prunex/prune/entries.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "prunex/prune/words.h"

namespace prunex::prune {
namespace {

constexpr double kEpsilon = 1e-8;

const Words<Normalizer>& normalizers() {
  static const Words<Normalizer> words{{"none", Normalizer::kNone},     {"mean", Normalizer::kMean},
                                       {"sum", Normalizer::kSum},       {"max", Normalizer::kMax},
                                       {"range", Normalizer::kRange},   {"gaussian", Normalizer::kGaussian},
                                       {"median", Normalizer::kMedian}, {"lamp", Normalizer::kLamp}};
  return words;
}

double sum(const UnitScores& scores) {
  return std::accumulate(scores.begin(), scores.end(), 0.0);
}

void divide(UnitScores& scores, double divisor) {
  if (divisor == 0) return;
  for (double& score : scores) score /= divisor;
}

void shift_and_divide(UnitScores& scores, double shift, double divisor) {
  for (double& score : scores) score = (score - shift) / divisor;
}

/// Unbiased, as in PyTorch; one unit deviates by nothing.
double standard_deviation(const UnitScores& scores, double mean) {
  if (scores.size() < 2) return 0;
  double squares = 0;
  for (double score : scores) squares += (score - mean) * (score - mean);
  return std::sqrt(squares / static_cast<double>(scores.size() - 1));
}

double median(UnitScores scores) {
  const auto middle = scores.begin() + static_cast<int64_t>(scores.size() / 2);
  std::nth_element(scores.begin(), middle, scores.end());
  return *middle;
}

void lamp(UnitScores& scores) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] < scores[b]; });
  double rest = 0;
  for (auto unit = order.rbegin(); unit != order.rend(); ++unit) {
    rest += scores[*unit];
    if (rest != 0) scores[*unit] /= rest;
  }
}

void combine(UnitScores& total, const UnitScores& entry, Reduction reduction) {
  for (size_t unit = 0; unit < total.size(); ++unit) {
    if (reduction == Reduction::kMax) {
      total[unit] = std::max(total[unit], entry[unit]);
    } else if (reduction == Reduction::kProduct) {
      total[unit] *= entry[unit];
    } else {
      total[unit] += entry[unit];
    }
  }
}

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

const std::vector<std::pair<std::string, Reduction>>& reductions() {
  static const std::vector<std::pair<std::string, Reduction>> words{
      {"mean", Reduction::kMean},       {"sum", Reduction::kSum},     {"max", Reduction::kMax},
      {"product", Reduction::kProduct}, {"first", Reduction::kFirst}, {"last", Reduction::kLast}};
  return words;
}

std::vector<std::string> normalizer_names() {
  return names_of(normalizers());
}

Normalizer normalizer_named(const std::string& name) {
  return meaning_of(name, normalizers(), "`normalizer`");
}

UnitScores by_unit(const sparsity::Slice& slice, int64_t size, const std::vector<double>& positions) {
  const size_t owned = slice.index.empty() ? positions.size() : slice.index.size();
  TORCH_CHECK(static_cast<int64_t>(owned) >= size, "[prune] ", size, " units have ", owned, " positions in ",
              slice.tensor);
  if (slice.index.empty()) return positions;
  UnitScores scores(size, 0);
  const auto block = static_cast<size_t>(slice.positions_per_unit(size));
  for (size_t i = 0; i < slice.index.size(); ++i) scores[i / block] += positions[slice.index[i]];
  return scores;
}

UnitScores reduce(const std::vector<UnitScores>& entries, Reduction reduction, size_t first) {
  if (reduction == Reduction::kFirst) return entries.at(first);
  if (reduction == Reduction::kLast) return entries.back();
  UnitScores total = entries.at(0);
  for (size_t entry = 1; entry < entries.size(); ++entry) combine(total, entries[entry], reduction);
  if (reduction == Reduction::kMean) divide(total, static_cast<double>(entries.size()));
  return total;
}

void normalize(UnitScores& scores, Normalizer normalizer) {
  if (scores.empty() || normalizer == Normalizer::kNone) return;
  const auto [low, high] = std::minmax_element(scores.begin(), scores.end());
  const double mean = sum(scores) / static_cast<double>(scores.size());
  switch (normalizer) {
    case Normalizer::kNone:
      return;
    case Normalizer::kMean:
      return divide(scores, mean);
    case Normalizer::kSum:
      return divide(scores, sum(scores));
    case Normalizer::kMax:
      return divide(scores, *high);
    case Normalizer::kRange:
      return shift_and_divide(scores, *low, *high - *low + kEpsilon);
    case Normalizer::kGaussian:
      return shift_and_divide(scores, mean, standard_deviation(scores, mean) + kEpsilon);
    case Normalizer::kMedian:
      return divide(scores, median(scores) + kEpsilon);
    case Normalizer::kLamp:
      return lamp(scores);
  }
}

Entries::Entries(const ImportanceOptions& options, const program::Graph& graph)
    : options_(options), roles_(channels::weight_roles(graph)) {}

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
    case WeightKind::kFactor:
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
    if (!channels::makes_units(role(slice.tensor), slice)) continue;
    if (channels::layer_of(slice.tensor) == group.name.substr(0, group.name.find_first_of("[#"))) return &slice;
    if (any == nullptr) any = &slice;
  }
  return any;
}

double Entries::positions_per_unit(const Group& group) const {
  const Slice* slice = maker(group);
  return slice == nullptr ? 1 : static_cast<double>(slice->positions_per_unit(group.size));
}

std::vector<UnitScores> Entries::score(const std::vector<Group>& groups, const LocalScores& local) const {
  std::vector<UnitScores> scores;
  for (const Group& group : groups) scores.push_back(score(group, local));
  return scores;
}

UnitScores Entries::score(const Group& group, const LocalScores& local) const {
  const Slice* made_by = maker(group);
  std::vector<UnitScores> entries;
  std::optional<size_t> first;
  for (const Slice& slice : group.slices) {
    const WeightRole& part = role(slice.tensor);
    const auto positions = local(slice, part, group.size);
    if (!positions) continue;
    if (&slice == made_by) first = entries.size();
    entries.push_back(by_unit(slice, group.size, *positions));
    if (options_.tp_compat) scale(entries.back(), repeats(slice, part));
  }
  const bool lacks_first = options_.reduction == Reduction::kFirst && !first && !options_.tp_compat;
  if (entries.empty() || lacks_first) return {};
  UnitScores scores = reduce(entries, options_.reduction, first.value_or(0));
  if (options_.tp_compat) scale(scores, 1 / positions_per_unit(group));
  normalize(scores, options_.normalizer);
  return scores;
}

}  // namespace prunex::prune
