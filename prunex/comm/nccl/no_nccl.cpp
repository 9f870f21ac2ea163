#include <stdexcept>

#include "prunex/comm/connect.h"
#include "prunex/comm/nccl/gpu.h"

namespace prunex::comm {
namespace {

[[noreturn]] void refuse() {
  throw std::invalid_argument("`device` cuda: built without CUDA: configure with -DPRUNEX_CUDA=ON");
}

}  // namespace

void check_gpu() {
  refuse();
}

Gpu use_gpu(int) {
  refuse();
}

std::string gpu_name(const c10::Device&) {
  refuse();
}

void let_nccl_use(const std::vector<std::string>&) {
  refuse();
}

std::unique_ptr<Communicator> make_nccl_communicator(const Group&, Store&, const Timeouts&, const Guard&) {
  refuse();
}

}  // namespace prunex::comm
