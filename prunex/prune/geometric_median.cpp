#include "prunex/prune/geometric_median.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "prunex/prune/entries.h"

namespace prunex::prune {
namespace {

using sparsity::Slice;

constexpr int64_t kChunk = 1024;  // rows whose distances to all are in memory at a time

/// One row per position of the slice, in its order.
at::Tensor rows_of(const at::Tensor& weight, const Slice& slice) {
  at::Tensor rows = weight.detach().to(at::kCPU, at::kFloat).movedim(slice.axis, 0);
  if (!slice.index.empty()) rows = rows.index_select(0, at::tensor(slice.index, at::kLong));
  return rows.reshape({rows.size(0), -1});
}

/// Of every row: the sum of its Euclidean distances to all rows.
std::vector<double> distances(const at::Tensor& rows) {
  std::vector<double> sums;
  for (int64_t begin = 0; begin < rows.size(0); begin += kChunk) {
    const at::Tensor part = rows.slice(0, begin, std::min(begin + kChunk, rows.size(0)));
    const at::Tensor chunk = at::cdist(part, rows).to(at::kDouble).sum(1);
    sums.insert(sums.end(), chunk.const_data_ptr<double>(), chunk.const_data_ptr<double>() + chunk.numel());
  }
  return sums;
}

class GeometricMedian final : public Importance {
 public:
  GeometricMedian(const ImportanceOptions& options, const program::Graph& graph) : entries_(options, graph) {}

  std::vector<UnitScores> score(const std::vector<sparsity::Group>& groups, const Weights& weights) const override {
    const at::NoGradGuard no_grad;
    std::vector<UnitScores> scores;
    for (const sparsity::Group& group : groups) {
      scores.push_back(entries_.score(
          group, [&](const Slice& slice, const WeightRole& role) { return local(slice, role, group.size, weights); }));
    }
    return scores;
  }

 private:
  std::optional<std::vector<double>> local(const Slice& slice, const WeightRole& role, int64_t size,
                                           const Weights& weights) const {
    if (role.out_axis < 0 || !entries_.counts(role)) return std::nullopt;
    const at::Tensor rows = rows_of(weights.params[slice.tensor], slice);
    if (entries_.options().tp_compat) return at_positions(distances(rows.abs().pow(entries_.options().power)), slice);
    return at_positions(spread(distances(rows.reshape({size, -1})), slice), slice);
  }

  /// The score of a unit at the first of its positions, zero at the others.
  static std::vector<double> spread(const std::vector<double>& units, const Slice& slice) {
    if (slice.index.empty()) return units;
    const size_t block = slice.index.size() / units.size();
    std::vector<double> positions(slice.index.size(), 0);
    for (size_t unit = 0; unit < units.size(); ++unit) positions[unit * block] = units[unit];
    return positions;
  }

  /// From the order of the slice to positions of the axis.
  static std::vector<double> at_positions(std::vector<double> ordered, const Slice& slice) {
    if (slice.index.empty()) return ordered;
    std::vector<double> positions(1 + *std::max_element(slice.index.begin(), slice.index.end()), 0);
    for (size_t i = 0; i < slice.index.size(); ++i) positions[slice.index[i]] = ordered[i];
    return positions;
  }

  Entries entries_;
};

}  // namespace

std::unique_ptr<Importance> make_geometric_median(const ImportanceOptions& options, const program::Graph& graph) {
  return std::make_unique<GeometricMedian>(options, graph);
}

}  // namespace prunex::prune
