#include "prunex/comm/communicator.h"

#include <ATen/ATen.h>

namespace prunex::comm {
namespace {

constexpr int64_t kAlignment = 16;       // entries: a cache line of floats
constexpr int64_t kLeastAligned = 1024;  // entries per part, so that rounding moves no more than 2 % of them

int64_t cut(Range whole, int64_t n, int64_t i) {
  if (i == n) return whole.end;
  const int64_t exact = whole.size() * i / n;
  return whole.begin + (whole.size() < n * kLeastAligned ? exact : exact / kAlignment * kAlignment);
}

}  // namespace

Range part(Range whole, int64_t n, int64_t i) {
  return {cut(whole, n, i), cut(whole, n, i + 1)};
}

std::vector<Range> parts(Range whole, int64_t n) {
  std::vector<Range> all;
  for (int64_t i = 0; i < n; ++i) all.push_back(part(whole, n, i));
  return all;
}

at::Tensor slice(const at::Tensor& flat, Range range) {
  return flat.narrow(0, range.begin, range.size());
}

}  // namespace prunex::comm
