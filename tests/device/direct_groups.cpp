#include "tests/device/direct_groups.h"

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <utility>

#include "prunex/comm/nccl/gpu.h"
#include "tests/device/pretend_device.h"

namespace prunex::tests {
namespace {

using comm::Communicator;
using comm::Range;

class Direct final : public Communicator {
 public:
  explicit Direct(Communicator& host) : Communicator("direct " + host.name(), host.rank(), host.size()), host_(host) {}

  bool serves(const c10::Device& device) const override { return device == pretend_device(); }
  void abort(const std::string& reason) override { host_.abort(reason); }

 private:
  void do_all_reduce(at::Tensor& tensor, comm::Reduce reduce) override {
    carry(tensor, [&](at::Tensor& data) { host_.all_reduce(data, reduce); });
  }
  void do_broadcast(at::Tensor& tensor, int root) override {
    carry(tensor, [&](at::Tensor& data) { host_.broadcast(data, root); });
  }
  void do_barrier() override { host_.barrier(); }
  void do_reduce_scatter(at::Tensor& tensor, const std::vector<Range>& parts) override {
    carry(tensor, [&](at::Tensor& data) { host_.reduce_scatter(data, parts); });
  }
  void do_all_gather_parts(at::Tensor& tensor, const std::vector<Range>& parts) override {
    carry(tensor, [&](at::Tensor& data) { host_.all_gather_parts(data, parts); });
  }
  void do_all_to_all(at::Tensor& output, const at::Tensor& input, const std::vector<Range>& parts) override {
    carry(output, [&](at::Tensor& received) { host_.all_to_all(received, input.cpu(), parts); });
  }

  static void carry(at::Tensor& tensor, const std::function<void(at::Tensor&)>& send) {
    const Uncounted transport;
    at::Tensor data = tensor.cpu();
    send(data);
    tensor.copy_(data);
  }

  Communicator& host_;
};

}  // namespace

void serve_pretend_device(comm::Hierarchy& ranks) {
  ranks.device = pretend_device();
  ranks.pipeline.reset();
  ranks.flat.reset();
  for (auto* group : {&ranks.world, &ranks.node, &ranks.rail, &ranks.site, &ranks.cross}) {
    if (!*group) continue;
    auto direct = std::make_unique<Direct>(**group);
    *group = comm::make_device_communicator(std::move(*group), std::move(direct));
  }
  ranks.flat = comm::make_view("flat", *ranks.world);
}

}  // namespace prunex::tests
