// torch.distributed's process groups as a rank's groups.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "prunex/comm/hierarchy.h"

namespace prunex::python {

/// Names of process groups by what they are to a rank; empty where it would be alone.
struct GroupNames {
  std::string world, node, rail;
};

/// The groups, and what Python hears while it waits in them.
class Ranks {
 public:
  /// timeout: seconds that an operation may take.
  Ranks(std::vector<int> node_sizes, int rank, const GroupNames& names, double timeout);

  comm::Hierarchy& hierarchy() { return hierarchy_; }

  /// Every rank's numbers, as many of each. Collective; every rank tells every other one at once, so that it takes one
  /// latency. Not counted among what exchanges send.
  std::vector<std::vector<int64_t>> gathered(const std::vector<int64_t>& numbers);

  /// Whether nothing has failed on the connections, in run() or as give_up() says: others may have them then, once this
  /// is gone.
  bool sound() const { return sound_; }
  void give_up() { sound_ = false; }

  /// Calls `work` without the interpreter's lock. Signals are heard while it waits for others: what their handlers
  /// raise, such as KeyboardInterrupt, is thrown here, and the groups are unusable from then on.
  template <class Work>
  auto run(const Work& work) {
    try {
      const nanobind::gil_scoped_release released;
      return work();
    } catch (...) {
      sound_ = false;
      rethrow();
    }
  }

 private:
  void hear_signals();
  [[noreturn]] void rethrow();

  std::unique_ptr<nanobind::python_error> raised_;
  bool sound_ = true;
  comm::Hierarchy hierarchy_;
};

}  // namespace prunex::python
