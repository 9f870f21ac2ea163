#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "prunex/comm/nccl/gpu.h"

namespace prunex::comm {
namespace {

/// Memory of the host for copies of tensors, one at a time. Page-locking takes long, so it is kept.
class Staging {
 public:
  at::Tensor like(const at::Tensor& tensor) {
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    if (!memory_.defined() || memory_.numel() < bytes) {
      memory_ = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(!tensor.is_cpu()));
    }
    return memory_.narrow(0, 0, bytes).view(tensor.scalar_type()).view(tensor.sizes());
  }

 private:
  at::Tensor memory_;
};

class DeviceCommunicator final : public Communicator {
 public:
  DeviceCommunicator(std::unique_ptr<Communicator> host, std::unique_ptr<Communicator> device, OnHost on_host)
      : Communicator(host->name(), host->rank(), host->size()),
        host_(std::move(host)),
        device_(std::move(device)),
        on_host_(std::move(on_host)) {
    stand_on(host_->nodes());
  }

  bool serves(const c10::Device& device) const override {
    if (device.is_cpu()) return true;
    return device_ ? device_->serves(device) : !device.is_meta();
  }

  void abort(const std::string& reason) override {
    host_->abort(reason);
    if (device_) device_->abort(reason);
  }

 private:
  using Call = std::function<void(Communicator&, at::Tensor&)>;

  void do_all_reduce(at::Tensor& tensor, Reduce reduce) override {
    in_place(tensor, [&](Communicator& group, at::Tensor& data) { group.all_reduce(data, reduce); });
  }
  void do_broadcast(at::Tensor& tensor, int root) override {
    in_place(tensor, [&](Communicator& group, at::Tensor& data) { group.broadcast(data, root); });
  }
  void do_barrier() override { host_->barrier(); }
  void do_reduce_scatter(at::Tensor& tensor, const std::vector<Range>& parts) override {
    in_place(tensor, [&](Communicator& group, at::Tensor& data) { group.reduce_scatter(data, parts); });
  }
  void do_all_gather_parts(at::Tensor& tensor, const std::vector<Range>& parts) override {
    in_place(tensor, [&](Communicator& group, at::Tensor& data) { group.all_gather_parts(data, parts); });
  }
  void do_all_to_all(at::Tensor& output, const at::Tensor& input, const std::vector<Range>& parts) override {
    if (on_host_(input)) return host_->all_to_all(output, input, parts);
    if (device_) return device_->all_to_all(output, input, parts);
    at::Tensor sent = first_.like(input), received = second_.like(output);
    sent.copy_(input);
    host_->all_to_all(received, sent, parts);
    output.copy_(received);
  }

  void in_place(at::Tensor& tensor, const Call& call) {
    if (on_host_(tensor)) return call(*host_, tensor);
    if (device_) return call(*device_, tensor);
    at::Tensor staged = first_.like(tensor);
    staged.copy_(tensor);
    call(*host_, staged);
    tensor.copy_(staged);
  }

  std::unique_ptr<Communicator> host_, device_;
  OnHost on_host_;
  Staging first_, second_;
};

}  // namespace

std::unique_ptr<Communicator> make_device_communicator(std::unique_ptr<Communicator> host,
                                                       std::unique_ptr<Communicator> device) {
  return make_device_communicator(std::move(host), std::move(device),
                                  [](const at::Tensor& tensor) { return tensor.is_cpu(); });
}

std::unique_ptr<Communicator> make_device_communicator(std::unique_ptr<Communicator> host,
                                                       std::unique_ptr<Communicator> device, OnHost on_host) {
  return std::make_unique<DeviceCommunicator>(std::move(host), std::move(device), std::move(on_host));
}

/// Of these ranks, the first two that share a GPU; none if all have their own.
std::vector<int> DeviceGroups::first_pair(const std::vector<int>& ranks) const {
  for (size_t i = 0; i < ranks.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (gpus_.at(ranks[i]) == gpus_.at(ranks[j])) return {ranks[j], ranks[i]};
    }
  }
  return {};
}

std::string DeviceGroups::sharing() const {
  std::vector<int> all(gpus_.size());
  std::iota(all.begin(), all.end(), 0);
  const auto pair = first_pair(all);
  return pair.empty() ? "" : fmt::format("ranks {} and {} share a GPU", pair[0], pair[1]);
}

std::unique_ptr<Communicator> DeviceGroups::extend(std::unique_ptr<Communicator> host, const Group& group,
                                                   const std::shared_ptr<Journal>& journal) const {
  std::unique_ptr<Communicator> device;
  if (group.members.size() > 1 && first_pair(group.members).empty()) {
    device = make_nccl_communicator(group, store_, timeouts_, guard_);
    device->record_in(journal);
  }
  return make_device_communicator(std::move(host), std::move(device));
}

Gpu choose_gpu(const std::vector<std::string>& machines, const Layout& layout, int ranks_before) {
  const auto mine = machines.begin() + layout.rank;
  return use_gpu(ranks_before + static_cast<int>(std::count(machines.begin(), mine, *mine)));
}

}  // namespace prunex::comm
