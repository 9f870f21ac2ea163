#include "prunex/comm/view.h"

#include <ATen/ATen.h>

#include <utility>

namespace prunex::comm {
namespace {

class View final : public Communicator {
 public:
  View(std::string name, Communicator& group)
      : Communicator(std::move(name), group.rank(), group.size()), group_(group) {
    stand_on(group.nodes());
  }

  bool serves(const c10::Device& device) const override { return group_.serves(device); }
  void abort(const std::string& reason) override { group_.abort(reason); }

 private:
  void do_all_reduce(at::Tensor& tensor, Reduce reduce) override { group_.all_reduce(tensor, reduce); }
  void do_broadcast(at::Tensor& tensor, int root) override { group_.broadcast(tensor, root); }
  void do_barrier() override { group_.barrier(); }
  void do_reduce_scatter(at::Tensor& tensor, const std::vector<Range>& parts) override {
    group_.reduce_scatter(tensor, parts);
  }
  void do_all_gather_parts(at::Tensor& tensor, const std::vector<Range>& parts) override {
    group_.all_gather_parts(tensor, parts);
  }
  void do_all_to_all(at::Tensor& output, const at::Tensor& input, const std::vector<Range>& parts) override {
    group_.all_to_all(output, input, parts);
  }

  Communicator& group_;
};

}  // namespace

std::unique_ptr<Communicator> make_view(std::string name, Communicator& group) {
  return std::make_unique<View>(std::move(name), group);
}

}  // namespace prunex::comm
