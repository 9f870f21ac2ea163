#include "prunex/channels/units.h"

#include <ATen/ATen.h>

#include <utility>

namespace prunex::channels {
namespace {

constexpr int64_t kMost = 1 << 24;

void keep_first(int32_t& current, int32_t reason) {
  if (reason != kFree && (current == kFree || reason < current)) current = reason;
}

}  // namespace

Unit Units::add(int64_t count) {
  TORCH_CHECK(count >= 0 && count <= kMost - size(), "[channels] has more than ", kMost, " channels");
  const auto first = static_cast<Unit>(parents_.size());
  for (int64_t i = 0; i < count; ++i) parents_.push_back(first + static_cast<Unit>(i));
  sets_.resize(parents_.size());
  return first;
}

Unit Units::find(Unit unit) const {
  while (parents_[unit] != unit) unit = parents_[unit];  // few: the smaller set joins the larger
  return unit;
}

void Units::unite(Unit a, Unit b, int32_t reason) {
  if (a == b) return;
  if (a == kFixed || b == kFixed) return freeze(a == kFixed ? b : a, reason);
  a = find(a);
  b = find(b);
  if (a == b) return;
  if (sets_[a].size < sets_[b].size) std::swap(a, b);
  parents_[b] = a;
  sets_[a].size += sets_[b].size;
  sets_[a].marks |= sets_[b].marks;
  keep_first(sets_[a].frozen, sets_[b].frozen);
  keep_first(sets_[a].blurred, sets_[b].blurred);
}

void Units::freeze(Unit unit, int32_t reason) {
  if (unit != kFixed) keep_first(sets_[find(unit)].frozen, reason);
}

void Units::blur(Unit unit, int32_t reason) {
  if (unit != kFixed) keep_first(sets_[find(unit)].blurred, reason);
}

void Units::mark(Unit unit, Mark mark) {
  if (unit != kFixed) sets_[find(unit)].marks |= static_cast<uint8_t>(mark);
}

}  // namespace prunex::channels
