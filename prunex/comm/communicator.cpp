#include "prunex/comm/communicator.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "prunex/comm/watch/journal.h"
#include "prunex/stopwatch.h"
#include "prunex/tensors.h"

namespace prunex::comm {
namespace {

bool can_reduce(const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  return type == at::kFloat || type == at::kDouble || type == at::kLong || type == at::kByte;
}

void check_dense(const at::Tensor& tensor, const Communicator& group) {
  TORCH_CHECK(tensor.defined(), "[comm] ", group.name(), ": undefined tensor");
  TORCH_CHECK(group.serves(tensor.device()), "[comm] ", group.name(), ": it does not serve tensors on ",
              tensor.device());
  TORCH_CHECK(tensor.is_non_overlapping_and_dense(), "[comm] ", group.name(), ": tensor with gaps or overlaps, shape ",
              tensor.sizes(), ", strides ", tensor.strides());
}

void check_output(const char* operation, const at::Tensor& output, const at::Tensor& input, int size) {
  auto wanted = input.sizes().vec();
  wanted.insert(wanted.begin(), size);
  TORCH_CHECK(output.sizes() == wanted, "[comm] ", operation, ": output of shape ", output.sizes(), ", wanted ",
              at::IntArrayRef(wanted));
  TORCH_CHECK(output.scalar_type() == input.scalar_type(), "[comm] ", operation, ": output of type ",
              output.scalar_type(), ", wanted ", input.scalar_type());
  TORCH_CHECK(output.device() == input.device(), "[comm] ", operation, ": output on ", output.device(), ", input on ",
              input.device());
  TORCH_CHECK(output.is_contiguous() && input.is_contiguous(), "[comm] ", operation, ": tensors must be contiguous");
}

// The elements in memory order, cut in buckets.
std::vector<at::Tensor> buckets(const at::Tensor& tensor) {
  const auto flat = in_memory_order(tensor);
  return flat.split(std::max<int64_t>(1, kBucketBytes / tensor.element_size()));
}

std::vector<Range> equal_parts(int64_t length, int size) {
  std::vector<Range> parts;
  for (int i = 0; i < size; ++i) parts.push_back({i * length, (i + 1) * length});
  return parts;
}

}  // namespace

void Communicator::run(const char* operation, const Volume& volume, const std::function<void()>& body) {
  if (broken_) throw std::runtime_error(fmt::format("[comm] {} in {}: the group broke earlier", operation, name_));
  const double begin = Stopwatch::now();
  const Journal::Operation entry(journal_.get(), name_, operation, volume.payload);
  try {
    body();
  } catch (const std::exception& error) {
    broken_ = true;
    fail(operation, error);
    throw;
  }
  const double seconds = Stopwatch::now() - begin;
  ++traffic_.operations;
  traffic_.bytes += volume;
  traffic_.seconds += seconds;
  traffic_.by_operation[operation].add(volume.payload, volume.sent, seconds);
}

void Communicator::fail(const char*, const std::exception&) {}

void Communicator::stand_on(std::vector<int> nodes) {
  TORCH_CHECK(nodes.size() == static_cast<size_t>(size_), "[comm] ", name_, ": nodes of ", nodes.size(), " members");
  node_of_ = std::move(nodes);
  nodes_ = static_cast<int>(std::set<int>(node_of_.begin(), node_of_.end()).size());
}

Volume Communicator::ring_volume(int64_t elements, int64_t element_size) const {
  const int64_t sent = all_reduce_sent_bytes(elements, element_size, place());
  const auto payload = static_cast<double>(elements * element_size);
  return {elements * element_size, sent, if_elsewhere((rank_ + 1) % size_, sent), 2 * payload * (nodes_ - 1) / size_};
}

Volume Communicator::broadcast_volume(int64_t bytes, int root) const {
  Volume volume{.payload = bytes, .least_to_nodes = static_cast<double>(bytes) * (nodes_ - 1) / size_};
  for (const int child : binomial_tree(root, place()).children) {
    volume.sent += bytes;
    volume.sent_to_nodes += if_elsewhere(child, bytes);
  }
  return volume;
}

/// Of an operation that sends everyone's own bytes to everyone else.
Volume Communicator::gather_volume(int64_t payload, int64_t mine) const {
  Volume volume{.payload = payload, .sent = (size_ - 1) * mine};
  for (int peer = 0; peer < size_; ++peer) volume.sent_to_nodes += if_elsewhere(peer, mine);
  return volume;
}

/// Of an operation that sends everyone else a part of their own.
Volume Communicator::scatter_volume(int64_t payload, const std::vector<Range>& parts, int64_t element_size) const {
  Volume volume{.payload = payload};
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const int64_t bytes = parts[static_cast<size_t>(peer)].size() * element_size;
    volume.sent += bytes;
    volume.sent_to_nodes += if_elsewhere(peer, bytes);
  }
  return volume;
}

void Communicator::all_reduce(at::Tensor& tensor, Reduce reduce) {
  check_dense(tensor, *this);
  TORCH_CHECK(can_reduce(tensor), "[comm] all_reduce of ", tensor.scalar_type(),
              ": wanted float, double, int64 or uint8");
  if (size_ == 1 || tensor.numel() == 0) return;
  Volume volume;
  for (const auto& bucket : buckets(tensor)) volume += ring_volume(bucket.numel(), bucket.element_size());
  run("all_reduce", volume, [&] {
    for (auto& bucket : buckets(tensor)) do_all_reduce(bucket, reduce);
  });
}

void Communicator::broadcast(at::Tensor& tensor, int root) {
  check_dense(tensor, *this);
  TORCH_CHECK(root >= 0 && root < size_, "[comm] broadcast from rank ", root, " of ", size_, " in ", name_);
  if (size_ == 1 || tensor.numel() == 0) return;
  run("broadcast", broadcast_volume(tensor.nbytes(), root), [&] {
    for (auto& bucket : buckets(tensor)) do_broadcast(bucket, root);
  });
}

void Communicator::all_gather(at::Tensor& output, const at::Tensor& input) {
  check_dense(input, *this);
  check_dense(output, *this);
  check_output("all_gather", output, input, size_);
  if (input.numel() == 0) return;
  output.detach().select(0, rank_).copy_(input.detach());
  if (size_ == 1) return;
  const int64_t bytes = input.nbytes();
  Volume volume = gather_volume(bytes, bytes);
  volume.least_to_nodes = static_cast<double>(bytes) * (nodes_ - 1);
  at::Tensor all = output.detach().view({-1});
  run("all_gather", volume, [&] { do_all_gather_parts(all, equal_parts(input.numel(), size_)); });
}

void Communicator::record_in(std::shared_ptr<Journal> journal) {
  if (size_ == 1) return;
  journal_ = std::move(journal);
  journal_->add_group(name_);
}

void Communicator::check_parts(const at::Tensor& tensor, const std::vector<Range>& parts) const {
  check_dense(tensor, *this);
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
  TORCH_CHECK(can_reduce(tensor), "[comm] reduce_scatter of ", tensor.scalar_type());
  if (size_ == 1 || tensor.numel() == 0) return;
  at::Tensor plain = tensor.detach();
  Volume volume = scatter_volume(tensor.nbytes(), parts, tensor.element_size());
  volume.least_to_nodes = static_cast<double>(tensor.nbytes()) * (nodes_ - 1) / size_;
  run("reduce_scatter", volume, [&] { do_reduce_scatter(plain, parts); });
}

void Communicator::all_gather_parts(at::Tensor& tensor, const std::vector<Range>& parts) {
  check_parts(tensor, parts);
  if (size_ == 1 || tensor.numel() == 0) return;
  at::Tensor plain = tensor.detach();
  Volume volume = gather_volume(tensor.nbytes(), parts[rank_].size() * tensor.element_size());
  volume.least_to_nodes = static_cast<double>(tensor.nbytes()) * (nodes_ - 1) / size_;
  run("all_gather_parts", volume, [&] { do_all_gather_parts(plain, parts); });
}

void Communicator::all_to_all(at::Tensor& output, const at::Tensor& input, const std::vector<Range>& parts) {
  check_parts(input, parts);
  const Range mine = parts[static_cast<size_t>(rank_)];
  check_output("all_to_all", output, input.narrow(0, mine.begin, mine.size()), size_);
  if (input.numel() == 0) return;
  at::Tensor plain = output.detach();
  plain.select(0, rank_).copy_(input.detach().narrow(0, mine.begin, mine.size()));
  if (size_ == 1) return;
  Volume volume = scatter_volume(input.nbytes(), parts, input.element_size());
  volume.least_to_nodes = static_cast<double>(input.nbytes()) * (nodes_ - 1) / nodes_;
  run("all_to_all", volume, [&] { do_all_to_all(plain, input.detach(), parts); });
}

void Communicator::barrier() {
  if (size_ == 1) return;
  run("barrier", {}, [&] { do_barrier(); });
}

std::string broadcast_text(Communicator& group, std::string text) {
  at::Tensor length = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  group.broadcast(length);
  text.resize(static_cast<size_t>(length.item<int64_t>()));
  at::Tensor bytes = at::from_blob(text.data(), {length.item<int64_t>()}, at::kByte);
  group.broadcast(bytes);
  return text;
}

std::optional<int> first_other(int64_t number, Communicator& group) {
  at::Tensor all = at::empty({group.size(), 1}, at::kLong);
  group.all_gather(all, at::tensor({number}, at::kLong));
  for (int rank = 1; rank < group.size(); ++rank) {
    if (!all[rank].equal(all[0])) return rank;
  }
  return std::nullopt;
}

std::vector<std::string> gather_texts(Communicator& group, const std::string& text) {
  const at::Tensor length = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  at::Tensor lengths = at::empty({group.size(), 1}, at::kLong);
  group.all_gather(lengths, length);
  at::Tensor mine = at::zeros({lengths.max().item<int64_t>()}, at::kByte);
  std::copy(text.begin(), text.end(), static_cast<char*>(mine.data_ptr()));
  at::Tensor all = at::empty({group.size(), mine.numel()}, at::kByte);
  group.all_gather(all, mine);
  std::vector<std::string> texts;
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    const auto* first = static_cast<const char*>(all[rank].const_data_ptr());
    texts.emplace_back(first, static_cast<size_t>(lengths[rank].item<int64_t>()));
  }
  return texts;
}

}  // namespace prunex::comm
