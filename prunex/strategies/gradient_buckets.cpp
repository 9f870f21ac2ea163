#include "prunex/strategies/gradient_buckets.h"

#include <ATen/ATen.h>

namespace prunex::strategies {

GradientBuckets::GradientBuckets(const TensorDict& params, const BucketSizes& sizes) : places_(params.size()) {
  std::vector<int64_t> lengths;
  for (size_t i = params.size(); i-- > 0;) {
    const at::Tensor& theta = params[i].value();
    TORCH_CHECK(theta.is_non_overlapping_and_dense(), "[strategies] parameter ", params[i].key(), " has gaps");
    const int64_t full =
        (lengths.size() <= 1 ? sizes.first : sizes.others) / static_cast<int64_t>(theta.element_size());
    if (lengths.empty() || lengths.back() >= full) {
      lengths.push_back(0);
      members_.push_back(0);
    }
    ++members_.back();
    const int64_t begin = lengths.back();
    lengths.back() += theta.numel();
    places_[i] = {
        static_cast<int>(lengths.size()) - 1, {begin, lengths.back()}, theta.sizes().vec(), theta.strides().vec()};
  }
  for (const int64_t length : lengths) buffers_.push_back(at::zeros({length}, params.front().value().dtype()));
}

at::Tensor GradientBuckets::view(int64_t parameter) const {
  const Place& place = places_[static_cast<size_t>(parameter)];
  return comm::slice(buffers_[static_cast<size_t>(place.bucket)], place.range)
      .as_strided(place.sizes, place.strides, place.range.begin);
}

}  // namespace prunex::strategies
