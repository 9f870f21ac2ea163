#include "prunex/comm/communicator.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>

namespace prunex::comm {
namespace {

// Adds its lifetime to a counter, also when the call throws.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  ~Stopwatch() { seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void check_dense(const at::Tensor& tensor, const std::string& group) {
  TORCH_CHECK(tensor.defined(), "[comm] ", group, ": undefined tensor");
  TORCH_CHECK(tensor.device().is_cpu(), "[comm] ", group, ": tensor on ", tensor.device(), ", wanted the CPU");
  TORCH_CHECK(tensor.is_non_overlapping_and_dense(), "[comm] ", group, ": tensor with gaps or overlaps, shape ",
              tensor.sizes(), ", strides ", tensor.strides());
}

void check_gather(const at::Tensor& output, const at::Tensor& input, int size) {
  auto wanted = input.sizes().vec();
  wanted.insert(wanted.begin(), size);
  TORCH_CHECK(output.sizes() == wanted, "[comm] all_gather: output of shape ", output.sizes(), ", wanted ",
              at::IntArrayRef(wanted));
  TORCH_CHECK(output.scalar_type() == input.scalar_type(), "[comm] all_gather: output of type ", output.scalar_type(),
              ", wanted ", input.scalar_type());
  TORCH_CHECK(output.is_contiguous() && input.is_contiguous(), "[comm] all_gather: tensors must be contiguous");
}

// The elements in memory order, cut in buckets.
std::vector<at::Tensor> buckets(const at::Tensor& tensor) {
  const auto flat = tensor.detach().as_strided({tensor.numel()}, {1});
  return flat.split(std::max<int64_t>(1, kBucketBytes / tensor.element_size()));
}

}  // namespace

void Communicator::all_reduce(at::Tensor& tensor, Reduce reduce) {
  check_dense(tensor, name_);
  TORCH_CHECK(can_reduce(tensor.scalar_type(), reduce), "[comm] all_reduce of ", tensor.scalar_type(),
              ": wanted float, double, int64 or uint8, and uint8 for kBitOr");
  if (size_ == 1 || tensor.numel() == 0) return;
  const Stopwatch watch(traffic_.seconds);
  const Journal::Operation entry(journal_.get(), name_, "all_reduce", tensor.nbytes());
  ++traffic_.operations;
  traffic_.payload_bytes += tensor.nbytes();
  for (auto& bucket : buckets(tensor)) {
    do_all_reduce(bucket, reduce);
    traffic_.sent_bytes += all_reduce_sent_bytes(bucket.numel(), bucket.element_size(), place());
  }
}

void Communicator::broadcast(at::Tensor& tensor, int root) {
  check_dense(tensor, name_);
  TORCH_CHECK(root >= 0 && root < size_, "[comm] broadcast from rank ", root, " of ", size_, " in ", name_);
  if (size_ == 1 || tensor.numel() == 0) return;
  const Stopwatch watch(traffic_.seconds);
  const Journal::Operation entry(journal_.get(), name_, "broadcast", tensor.nbytes());
  ++traffic_.operations;
  traffic_.payload_bytes += tensor.nbytes();
  for (auto& bucket : buckets(tensor)) {
    do_broadcast(bucket, root);
    traffic_.sent_bytes += broadcast_sent_bytes(bucket.nbytes(), root, place());
  }
}

void Communicator::all_gather(at::Tensor& output, const at::Tensor& input) {
  check_dense(input, name_);
  check_dense(output, name_);
  check_gather(output, input, size_);
  if (input.numel() == 0) return;
  if (size_ == 1) {
    output.detach().copy_(input.detach().unsqueeze(0));
    return;
  }
  const Stopwatch watch(traffic_.seconds);
  const Journal::Operation entry(journal_.get(), name_, "all_gather", input.nbytes());
  ++traffic_.operations;
  traffic_.payload_bytes += input.nbytes();
  do_all_gather(output, input);
  traffic_.sent_bytes += all_gather_sent_bytes(input.nbytes(), place());
}

void Communicator::record_in(std::shared_ptr<Journal> journal) {
  if (size_ == 1) return;
  journal_ = std::move(journal);
  journal_->add_group(name_);
}

void Communicator::check_parts(const at::Tensor& tensor, const std::vector<Range>& parts) const {
  check_dense(tensor, name_);
  TORCH_CHECK(tensor.dim() == 1 && tensor.is_contiguous(), "[comm] ", name_, ": wanted one contiguous dimension");
  TORCH_CHECK(parts.size() == static_cast<size_t>(size_), "[comm] ", name_, ": ", parts.size(), " parts for ", size_,
              " ranks");
  int64_t end = 0;
  for (const Range& part : parts) {
    TORCH_CHECK(part.begin == end && part.end >= end, "[comm] ", name_, ": parts with gaps or overlaps");
    end = part.end;
  }
  TORCH_CHECK(end == tensor.numel(), "[comm] ", name_, ": parts of ", end, " entries for a tensor of ", tensor.numel());
}

void Communicator::reduce_scatter(at::Tensor& tensor, const std::vector<Range>& parts) {
  check_parts(tensor, parts);
  TORCH_CHECK(can_reduce(tensor.scalar_type(), Reduce::kSum), "[comm] reduce_scatter of ", tensor.scalar_type());
  if (size_ == 1 || tensor.numel() == 0) return;
  const Stopwatch watch(traffic_.seconds);
  const Journal::Operation entry(journal_.get(), name_, "reduce_scatter", tensor.nbytes());
  ++traffic_.operations;
  traffic_.payload_bytes += tensor.nbytes();
  at::Tensor plain = tensor.detach();
  do_reduce_scatter(plain, parts);
  traffic_.sent_bytes += (tensor.numel() - parts[rank_].size()) * tensor.element_size();
}

void Communicator::all_gather_parts(at::Tensor& tensor, const std::vector<Range>& parts) {
  check_parts(tensor, parts);
  if (size_ == 1 || tensor.numel() == 0) return;
  const Stopwatch watch(traffic_.seconds);
  const Journal::Operation entry(journal_.get(), name_, "all_gather_parts", tensor.nbytes());
  ++traffic_.operations;
  traffic_.payload_bytes += tensor.nbytes();
  at::Tensor plain = tensor.detach();
  do_all_gather_parts(plain, parts);
  traffic_.sent_bytes += (size_ - 1) * parts[rank_].size() * tensor.element_size();
}

void Communicator::barrier() {
  if (size_ == 1) return;
  const Stopwatch watch(traffic_.seconds);
  const Journal::Operation entry(journal_.get(), name_, "barrier", 0);
  ++traffic_.operations;
  do_barrier();
}

}  // namespace prunex::comm
