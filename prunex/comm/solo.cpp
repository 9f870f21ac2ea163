#include "prunex/comm/solo.h"

#include <ATen/ATen.h>

#include <utility>

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

}  // namespace

std::unique_ptr<Communicator> make_solo(std::string name) {
  return std::make_unique<Solo>(std::move(name));
}

}  // namespace prunex::comm
