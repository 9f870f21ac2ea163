// Consecutive entries of a flat buffer, and how a buffer is divided.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace prunex::comm {

struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool empty() const { return begin == end; }
  bool operator==(const Range&) const = default;
};

/// The i-th of n nearly equal parts. Long ranges are cut at multiples of 16 entries from their beginning.
Range part(Range whole, int64_t n, int64_t i);

/// All n parts.
std::vector<Range> parts(Range whole, int64_t n);

/// A view of these entries of a one-dimensional tensor.
at::Tensor slice(const at::Tensor& flat, Range range);

}  // namespace prunex::comm
