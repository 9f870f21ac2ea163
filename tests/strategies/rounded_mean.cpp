#include "tests/strategies/rounded_mean.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

namespace prunex::strategies {
namespace {

constexpr int64_t kBlock = 128;

at::Tensor in_bf16(const at::Tensor& scale) {
  return scale.to(at::kBFloat16).to(at::kFloat);
}

/// In spacings.
double highest_of(Payload payload) {
  if (payload == Payload::kInt1) return 0.5;
  if (payload == Payload::kInt2) return 1.5;
  return payload == Payload::kInt4 ? 7 : 127;
}

/// The nearest of 2^bits - 1 levels from minus the largest magnitude to it, or of four or two around zero. In the
/// middle of two levels the last bit of a division in fp32 decides; that the level is the nearest one is checked
/// against a list.
at::Tensor rounded_block(const at::Tensor& values, Payload payload) {
  const double highest = highest_of(payload);
  const at::Tensor spacing = payload == Payload::kInt1   ? 2 * in_bf16(values.abs().mean())
                             : payload == Payload::kInt2 ? 0.9957 * in_bf16(values.square().mean().sqrt())
                                                         : in_bf16(values.abs().max()) / highest;
  if (spacing.item<double>() == 0) return at::zeros_like(values);
  const at::Tensor codes = (values / spacing + highest).round().clamp(0, 2 * highest);
  const at::Tensor read = (codes - highest) * spacing;
  const at::Tensor levels = at::arange(-highest, highest + 0.5, at::kFloat) * spacing;
  const at::Tensor nearest = std::get<0>((values.unsqueeze(1) - levels).abs().min(1));
  EXPECT_LT((((values - read).abs() - nearest) / spacing).max().item<double>(), 1e-4) << name_of(payload);
  return read;
}

/// What is read of values of which the first `weights` belong to matrices, the others to vectors.
at::Tensor rounded(const at::Tensor& values, int64_t weights, Payload payload) {
  if (payload == Payload::kBf16) return values.to(at::kBFloat16).to(at::kFloat);
  at::Tensor read = values.to(at::kHalf).to(at::kFloat);
  if (payload == Payload::kFp16) return read;
  for (int64_t begin = 0; begin < weights; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, weights);
    read.slice(0, begin, end).copy_(rounded_block(values.slice(0, begin, end), payload));
  }
  return read;
}

}  // namespace

Line::Line(const TensorDict& like) : like_(like) {
  for (const bool matrices : {true, false}) {
    for (const auto& item : like) {
      const at::Tensor& tensor = item.value();
      if ((tensor.dim() > 1) != matrices) continue;
      names_.push_back(item.key());
      const int64_t width = tensor.numel() / tensor.size(0);
      for (int64_t row = 0; row < tensor.size(0); ++row) row_starts_.push_back(size_ + row * width);
      size_ += tensor.numel();
      if (matrices) weights_ = size_;
    }
  }
  row_starts_.push_back(size_);
}

at::Tensor Line::of(const TensorDict& tensors) const {
  std::vector<at::Tensor> flat;
  for (const auto& name : names_) {
    const at::Tensor& tensor = tensors[name];
    flat.push_back((tensor.dim() == 4 ? tensor.permute({0, 2, 3, 1}) : tensor).reshape({-1}));
  }
  return at::cat(flat);
}

TensorDict Line::tensors_of(const at::Tensor& line) const {
  TensorDict tensors;
  int64_t begin = 0;
  for (const auto& name : names_) {
    at::Tensor tensor = at::zeros_like(like_[name]);
    at::Tensor in_line = tensor.dim() == 4 ? tensor.permute({0, 2, 3, 1}) : tensor;
    in_line.copy_(line.slice(0, begin, begin + tensor.numel()).view(in_line.sizes()));
    begin += tensor.numel();
    tensors.insert(name, tensor);
  }
  return tensors;
}

std::vector<int64_t> Line::parts(int rails) const {
  std::vector<int64_t> ends{0};
  for (int rail = 1; rail < rails; ++rail) {
    const int64_t wanted = size_ * rail / rails;
    ends.push_back(*std::min_element(row_starts_.begin(), row_starts_.end(), [&](int64_t a, int64_t b) {
      return std::abs(a - wanted) < std::abs(b - wanted);
    }));
  }
  ends.push_back(size_);
  return ends;
}

RoundedMean::RoundedMean(const comm::Layout& shape, Payload payload, const TensorDict& like)
    : payload_(payload), line_(like), parts_(line_.parts(shape.rails())) {
  const at::Tensor zero = at::zeros_like(line_.of(like));
  for (int node = 0; node < shape.nodes(); ++node) owed_.push_back({zero.clone(), zero.clone()});
}

TensorDict RoundedMean::operator()(const std::vector<TensorDict>& changes, const TensorDict& alive) {
  std::vector<at::Tensor> lines;
  for (const auto& change : changes) lines.push_back(line_.of(change));
  at::Tensor mean = at::zeros_like(lines.front());
  std::vector<Owed> next;
  for (size_t node = 0; node < owed_.size(); ++node) next.push_back({at::zeros_like(mean), at::zeros_like(mean)});
  const at::Tensor entries = line_.of(alive).nonzero().squeeze(1);
  const auto nodes = static_cast<int64_t>(changes.size());
  for (size_t part = 0; part + 1 < parts_.size(); ++part) {
    const at::Tensor inside = entries.ge(parts_[part]).logical_and(entries.lt(parts_[part + 1]));
    const at::Tensor own = entries.masked_select(inside);
    for (int64_t owner = 0; owner < nodes; ++owner) {
      const at::Tensor share = own.slice(0, own.numel() * owner / nodes, own.numel() * (owner + 1) / nodes);
      mean.index_copy_(0, share, mean_of_share(lines, static_cast<size_t>(owner), share, next));
    }
  }
  owed_ = next;
  return line_.tensors_of(mean);
}

void RoundedMean::forget(const std::string& name) {
  for (Owed& owed : owed_) {
    for (at::Tensor* line : {&owed.sent, &owed.returned}) {
      TensorDict tensors = line_.tensors_of(*line);
      tensors[name].zero_();
      *line = line_.of(tensors);
    }
  }
}

/// What a node owed as the owner of entries that are another's now is in all its earlier means, so it counts for every
/// node's value.
at::Tensor RoundedMean::mean_of_share(const std::vector<at::Tensor>& changes, size_t owner, const at::Tensor& share,
                                      std::vector<Owed>& next) const {
  const int64_t weights = share.lt(line_.weights()).sum().item<int64_t>();
  const auto nodes = static_cast<double>(changes.size());
  at::Tensor sum = at::zeros({share.numel()});
  for (size_t node = 0; node < changes.size(); ++node) {
    at::Tensor value = changes[node].index_select(0, share) + owed_[node].sent.index_select(0, share);
    if (node != owner) value = value + nodes * owed_[node].returned.index_select(0, share);
    const at::Tensor read = node == owner ? value : rounded(value, weights, payload_);
    next[node].sent.index_copy_(0, share, value - read);
    sum += read;
  }
  const at::Tensor value = sum / nodes + owed_[owner].returned.index_select(0, share);
  const at::Tensor read = rounded(value, weights, payload_);
  next[owner].returned.index_copy_(0, share, value - read);
  return read;
}

}  // namespace prunex::strategies
