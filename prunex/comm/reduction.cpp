#include "prunex/comm/reduction.h"

#include <algorithm>
#include <functional>

namespace prunex::comm {
namespace {

template <class T, class Op>
void combine(void* out, const void* a, const void* b, int64_t count) {
  const T* x = static_cast<const T*>(a);
  std::transform(x, x + count, static_cast<const T*>(b), static_cast<T*>(out), Op());
}

struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return std::max(a, b);
  }
};

template <class T>
ReduceFunction sum_or_max(Reduce reduce) {
  return reduce == Reduce::kMax ? combine<T, Max> : combine<T, std::plus<T>>;
}

}  // namespace

bool can_reduce(c10::ScalarType type) {
  return type == c10::kFloat || type == c10::kDouble || type == c10::kLong || type == c10::kByte;
}

ReduceFunction reduce_function(c10::ScalarType type, Reduce reduce) {
  switch (type) {
    case c10::kFloat:
      return sum_or_max<float>(reduce);
    case c10::kDouble:
      return sum_or_max<double>(reduce);
    case c10::kLong:
      return sum_or_max<int64_t>(reduce);
    default:
      return sum_or_max<uint8_t>(reduce);
  }
}

}  // namespace prunex::comm
