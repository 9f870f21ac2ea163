#include "python/src/process_groups.h"

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
