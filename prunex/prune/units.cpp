#include "prunex/prune/units.h"

#include <utility>

namespace prunex::prune {

Unit Units::add(int64_t count) {
  const auto first = static_cast<Unit>(parents_.size());
  for (int64_t i = 0; i < count; ++i) parents_.push_back(first + static_cast<Unit>(i));
  sizes_.resize(parents_.size(), 1);
  reasons_.resize(parents_.size(), kFree);
  return first;
}

Unit Units::find(Unit unit) const {
  while (parents_[unit] != unit) unit = parents_[unit] = parents_[parents_[unit]];
  return unit;
}

void Units::unite(Unit a, Unit b, int32_t reason) {
  if (a == b) return;
  if (a == kFixed || b == kFixed) return freeze(a == kFixed ? b : a, reason);
  a = find(a);
  b = find(b);
  if (a == b) return;
  if (sizes_[a] < sizes_[b]) std::swap(a, b);
  parents_[b] = a;
  sizes_[a] += sizes_[b];
  freeze(a, reasons_[b]);
}

void Units::freeze(Unit unit, int32_t reason) {
  if (unit == kFixed || reason == kFree) return;
  int32_t& current = reasons_[find(unit)];
  if (current == kFree || reason < current) current = reason;
}

}  // namespace prunex::prune
