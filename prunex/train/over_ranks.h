// What ranks tell each other besides the exchanges of the strategy. What takes a group, or the hierarchy by reference,
// is collective unless it says otherwise; the counts leave it out.
#pragma once

#include <csignal>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "prunex/comm/hierarchy.h"
#include "prunex/sparsity/cut.h"
#include "prunex/train/local_step.h"
#include "prunex/train/options.h"
#include "prunex/train/run/metrics.h"

namespace prunex::train {

/// What ranks ask for after an exchange, added up; all do it if one asks.
struct Wishes {
  double checkpoint = 0;
  double stop = 0, signals = 0;  ///< ranks that were asked to stop, and the sum of the signals that asked

  bool ends() const { return stop > 0; }
  /// A part of the ranks leaves an elastic run of so many, for which no other has to stop.
  bool lets_some_leave(int64_t ranks) const {
    return ends() && stop < static_cast<double>(ranks) && signal() == SIGTERM;
  }
  bool any() const { return checkpoint > 0 || ends(); }
  /// The signal, the same on all ranks; SIGTERM for different ones.
  int signal() const;
};

/// Loss and seconds become means over the ranks that have trained, bytes the sums over node 0's ranks, wishes those of
/// all; `moved`: by this rank. Some 100 bytes.
void average_over_ranks(Metrics& metrics, const comm::Volume& moved, Wishes& wishes, comm::Hierarchy& ranks);

/// Adds what this rank's groups have moved, by group; and what counters of the same nodes say. Not collective.
void add_traffic(std::map<std::string, comm::Traffic>& sums, const comm::Hierarchy& ranks);
void add_by_node(comm::NodeInterfaceBytes& sums, const comm::NodeInterfaceBytes& more);

/// By rank.
std::vector<admm::Residuals> gather(const admm::Residuals& own, comm::Communicator& world);

/// Of local steps; kAuto: bf16 if the processors of all ranks are faster in it, TF32 on GPUs.
Arithmetic decide_arithmetic(Precision precision, const c10::Device& device, comm::Communicator& world);

/// How many different ones of these numbers, none of which is negative, the ranks have together.
int64_t count_of_all(const std::vector<int64_t>& numbers, comm::Communicator& world);

/// std::invalid_argument, on all ranks, that names the first option in which a rank's resolved configuration is not
/// rank 0's, though it may not differ.
void expect_same_options(const std::string& config, comm::Communicator& world);

/// Ranks that cut differently would go on with different networks and garbage: std::runtime_error on all of them.
void check_agreement(const sparsity::Cut& cut, comm::Communicator& world);

}  // namespace prunex::train
