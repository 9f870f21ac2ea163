#include "prunex/comm/communicator.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "prunex/stopwatch.h"

namespace prunex::comm {
namespace {

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

// What an operation sends that goes bucket by bucket.
int64_t sent_by_buckets(const at::Tensor& tensor, const std::function<int64_t(const at::Tensor&)>& sent) {
  int64_t bytes = 0;
  for (const auto& bucket : buckets(tensor)) bytes += sent(bucket);
  return bytes;
}

}  // namespace

void Communicator::run(const char* operation, int64_t payload, int64_t sent, const std::function<void()>& body) {
  const double begin = Stopwatch::now();
  const Journal::Operation entry(journal_.get(), name_, operation, payload);
  body();
  charge(operation, payload, sent, Stopwatch::now() - begin);
}

void Communicator::charge(const char* operation, int64_t payload, int64_t sent, double seconds) {
  ++traffic_.operations;
  traffic_.payload_bytes += payload;
  traffic_.sent_bytes += sent;
  traffic_.seconds += seconds;
  traffic_.by_operation[operation].add(payload, sent, seconds);
}

void Communicator::all_reduce(at::Tensor& tensor, Reduce reduce) {
  check_dense(tensor, name_);
  TORCH_CHECK(can_reduce(tensor.scalar_type()), "[comm] all_reduce of ", tensor.scalar_type(),
              ": wanted float, double, int64 or uint8");
  if (size_ == 1 || tensor.numel() == 0) return;
  const int64_t sent = sent_by_buckets(tensor, [&](const at::Tensor& bucket) {
    return all_reduce_sent_bytes(bucket.numel(), bucket.element_size(), place());
  });
  run("all_reduce", tensor.nbytes(), sent, [&] {
    for (auto& bucket : buckets(tensor)) do_all_reduce(bucket, reduce);
  });
}

void Communicator::broadcast(at::Tensor& tensor, int root) {
  check_dense(tensor, name_);
  TORCH_CHECK(root >= 0 && root < size_, "[comm] broadcast from rank ", root, " of ", size_, " in ", name_);
  if (size_ == 1 || tensor.numel() == 0) return;
  run("broadcast", tensor.nbytes(), broadcast_sent_bytes(tensor.nbytes(), root, place()), [&] {
    for (auto& bucket : buckets(tensor)) do_broadcast(bucket, root);
  });
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
  run("all_gather", input.nbytes(), all_gather_sent_bytes(input.nbytes(), place()),
      [&] { do_all_gather(output, input); });
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
  TORCH_CHECK(can_reduce(tensor.scalar_type()), "[comm] reduce_scatter of ", tensor.scalar_type());
  if (size_ == 1 || tensor.numel() == 0) return;
  at::Tensor plain = tensor.detach();
  run("reduce_scatter", tensor.nbytes(), (tensor.numel() - parts[rank_].size()) * tensor.element_size(),
      [&] { do_reduce_scatter(plain, parts); });
}

void Communicator::all_gather_parts(at::Tensor& tensor, const std::vector<Range>& parts) {
  check_parts(tensor, parts);
  if (size_ == 1 || tensor.numel() == 0) return;
  at::Tensor plain = tensor.detach();
  run("all_gather_parts", tensor.nbytes(), (size_ - 1) * parts[rank_].size() * tensor.element_size(),
      [&] { do_all_gather_parts(plain, parts); });
}

void Communicator::barrier() {
  if (size_ == 1) return;
  run("barrier", 0, 0, [&] { do_barrier(); });
}

}  // namespace prunex::comm
