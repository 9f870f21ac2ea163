// What a recorded run would take elsewhere.
#pragma once

#include <string>

#include "plan/cluster.h"
#include "plan/recorded.h"

namespace prunex::plan {

/// How it is to be run there.
struct Setting {
  double local_steps = 0;
  std::string payload;
  double batch = 0;  ///< images per rank and step
  /// Seconds of a step of the run's dense network with this batch, where not as recorded: what was measured after a
  /// cut, and in exchanges, is scaled alike.
  std::optional<double> seconds_per_step;
  /// Whether what exchanges took between nodes where they were recorded is added to the wire: right where those nodes
  /// were one machine.
  bool counts_overhead = false;
};

Setting as_recorded(const Recorded& recorded);

struct Prediction {
  double steps = 0, exchanges = 0;  ///< of every rank
  double seconds = 0;               ///< without evaluation
  double compute = 0;               ///< of which local steps at their own speed
  double wire = 0;                  ///< of which waiting for messages between nodes
  double node_bytes = 0;            ///< that a node sends to others
};

/// The seed's run on the cluster, until so many images were seen by all ranks together. Every stretch keeps its images,
/// its seconds per image and what it sends per exchange: a phase of training comes after as many images as it came.
/// Throws std::invalid_argument if the strategy does not have the payload, or would send something else at another
/// interval.
Prediction predict(const Recorded& recorded, const RecordedSeed& seed, const Setting& setting, const Cluster& cluster,
                   const Network& network, double images);

/// Steps between exchanges for which waiting takes `share` of the time: wire / (share / (1 - share)) / step.
double interval_for(double share, double wire_seconds, double step_seconds);

/// Seconds from the start of a step to its end where gradients, `bytes` in all, leave while backward runs: Recorded's
/// buckets, each when it is whole and the one before has passed.
double overlapped_step(double step_seconds, double bytes, const std::vector<report::Bucket>& buckets, comm::Form form,
                       const Network& network);

}  // namespace prunex::plan
