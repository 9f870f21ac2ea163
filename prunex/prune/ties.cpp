#include "prunex/prune/ties.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace prunex::prune {

using program::ValueId;

void tie_equal_positions(Axes& axes, const Labels& labels, int64_t block) {
  if (labels == nullptr) return;
  TORCH_CHECK(block > 0 && labels->size() % block == 0, "[prune] blocks of ", block, " do not divide an axis of ",
              labels->size());
  for (size_t i = block; i < labels->size(); ++i) axes.tie((*labels)[i % block], (*labels)[i]);
}

Labels broadcast(Axes& axes, const std::vector<ValueId>& operands, ValueId output, int64_t axis) {
  std::vector<std::pair<ValueId, int64_t>> joined;
  for (ValueId value : operands) {
    const int64_t own = axis - (axes.rank(output) - axes.rank(value));
    if (own >= 0 && axes.shape(value)[own] == axes.shape(output)[axis]) joined.emplace_back(value, own);
  }
  if (joined.empty()) return nullptr;
  // What has labels comes first: weights and open axes adopt them.
  const auto adopts = [&](const auto& place) {
    return axes.is_open(place.first, place.second) ? 2 : axes.is_weight(place.first) ? 1 : 0;
  };
  std::stable_sort(joined.begin(), joined.end(), [&](auto& a, auto& b) { return adopts(a) < adopts(b); });
  Labels labels = axes.labels(joined[0].first, joined[0].second);
  for (size_t i = 1; i < joined.size(); ++i) labels = axes.tie(labels, joined[i].first, joined[i].second);
  return labels;
}

Labels range(const Labels& labels, int64_t start, int64_t length, int64_t step) {
  if (labels == nullptr) return nullptr;
  const auto size = static_cast<int64_t>(labels->size());
  TORCH_CHECK(start >= 0 && step > 0 && length >= 0 && length <= size && start + (length - 1) * step < size,
              "[prune] an axis of ", size, " has no ", length, " positions from ", start, " by ", step);
  auto out = std::make_shared<std::vector<Unit>>(length);
  for (int64_t i = 0; i < length; ++i) (*out)[i] = (*labels)[start + i * step];
  return out;
}

}  // namespace prunex::prune
