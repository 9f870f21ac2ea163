#include "python/src/process_groups.h"

#include <ATen/ATen.h>

#include <chrono>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "prunex/comm/c10d/c10d_communicator.h"

namespace prunex::python {
namespace {

c10::intrusive_ptr<c10d::ProcessGroup> named(const std::string& name) {
  return name.empty() ? nullptr : c10d::resolve_process_group(name);
}

}  // namespace

Ranks::Ranks(std::vector<int> node_sizes, int rank, const GroupNames& names, double timeout) {
  const comm::Layout layout{.node_sizes = std::move(node_sizes), .rank = rank};
  const comm::ProcessGroups groups{named(names.world), named(names.node), named(names.rail)};
  const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::duration<double>(timeout));
  hierarchy_ = comm::make_hierarchy(
      layout, groups, limit,
      {.abort_switch = std::make_shared<comm::AbortSwitch>(), .on_wait = [this] { hear_signals(); }});
}

std::vector<std::vector<int64_t>> Ranks::gathered(const std::vector<int64_t>& numbers) {
  const auto count = static_cast<int64_t>(numbers.size());
  const int64_t ranks = hierarchy_.layout.world_size();
  const at::Tensor input = at::tensor(numbers, at::kLong).repeat({ranks});
  at::Tensor output = at::empty({ranks, count}, at::kLong);
  std::vector<comm::Range> to_each;
  for (int64_t r = 0; r < ranks; ++r) to_each.push_back({r * count, (r + 1) * count});
  run([&] { hierarchy_.world->all_to_all(output, input, to_each); });

  std::vector<std::vector<int64_t>> everyone;
  for (const int64_t* own = output.const_data_ptr<int64_t>(); everyone.size() < static_cast<size_t>(ranks);
       own += count) {
    everyone.emplace_back(own, own + count);
  }
  return everyone;
}

void Ranks::hear_signals() {
  const nanobind::gil_scoped_acquire acquired;
  if (PyErr_CheckSignals() == 0) return;
  raised_ = std::make_unique<nanobind::python_error>();
  throw std::runtime_error("interrupted");
}

void Ranks::rethrow() {
  if (!raised_) throw;
  const auto raised = std::move(raised_);
  throw nanobind::python_error(*raised);
}

}  // namespace prunex::python
