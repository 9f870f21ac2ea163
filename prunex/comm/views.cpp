#include <ATen/ATen.h>

#include <utility>

#include "prunex/comm/communicator.h"

namespace prunex::comm {
namespace {

class Solo final : public Communicator {
 public:
  explicit Solo(std::string name) : Communicator(std::move(name), 0, 1) {}

  void abort(const std::string&) override {}

 private:
  void do_all_reduce(at::Tensor&, Reduce) override { never(); }
  void do_broadcast(at::Tensor&, int) override { never(); }
  void do_barrier() override { never(); }
  void do_reduce_scatter(at::Tensor&, const std::vector<Range>&) override { never(); }
  void do_all_gather_parts(at::Tensor&, const std::vector<Range>&) override { never(); }
  void do_all_to_all(at::Tensor&, const at::Tensor&, const std::vector<Range>&) override { never(); }

  static void never() { TORCH_CHECK(false, "[comm] a group of one reached its backend"); }
};

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

std::unique_ptr<Communicator> make_solo(std::string name) {
  return std::make_unique<Solo>(std::move(name));
}

std::unique_ptr<Communicator> make_view(std::string name, Communicator& group) {
  return std::make_unique<View>(std::move(name), group);
}

}  // namespace prunex::comm
