// What runs recorded, taken apart into what holds on any cluster: work per step, what is reduced per exchange, accuracy
// by images seen.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "prunex/comm/cost_model.h"
#include "report/statistics.h"
#include "report/tasks.h"

namespace prunex::plan {

/// Between two exchanges, as one line of metrics.jsonl has it.
struct Stretch {
  double images = 0;         ///< of all ranks
  double step_seconds = 0;   ///< of a local step, at the usual speed
  double work_seconds = 0;   ///< of an exchange, in the nodes
  double inter_seconds = 0;  ///< of an exchange, between nodes where it was recorded
  double macs = 0;           ///< of an image, of the network of its steps; 0 where the record does not say
  double reduced = 0;        ///< bytes per rank that an exchange, or a step where gradients are sent, sums up
  double gathered = 0;       ///< bytes of every rank that all get, likewise
};

/// Operations of one exchange, or one step where gradients are sent: how many wait for each other.
struct Operations {
  double rings = 0;   ///< all-reduces round a ring
  double direct = 0;  ///< pairs: parts to their owners, sums to all
  double gathers = 0;
};

struct RecordedSeed {
  std::vector<Stretch> stretches;
  std::vector<report::Sample> accuracies;  ///< x: images, y: 0 to 1
  double scatter = 0;                      ///< report::timing_scatter
};

/// The finished seeds of a variant.
struct Recorded {
  std::string name, strategy, model, payload, precision;
  int nodes = 2, ranks = 2;
  double batch = 0;  ///< images per rank and step
  double local_steps = 0;
  double images = 0;  ///< of the whole run, all ranks
  std::optional<double> images_per_epoch;
  bool sends_gradients = false;
  double overlap = 0;  ///< share of the local steps beside which messages travel
  comm::Form form = comm::Form::kSharded;
  bool knows_no_nodes = false;         ///< every rank sends what a node would
  bool averages_in_node = false;       ///< gradients, in every step, whose seconds hold it
  bool changes_what_it_sends = false;  ///< post-local SGD: at another interval it would send something else
  Operations operations;
  std::vector<report::Bucket> buckets;  ///< bytes as shares of all; empty unless gradients leave while backward runs
  double numbers = 0, statistics = 0;   ///< parameters, and running means and variances, of the dense network
  double macs = 0;                      ///< of an image, of the dense network; 0 where the record does not say
  std::vector<RecordedSeed> seeds;
  std::optional<report::Spread> accuracy;
};

/// Throws std::invalid_argument that says why nothing can be told of other clusters.
Recorded take_apart(const report::Variant& variant);

/// Bytes of a message in this payload to those in the recorded one, by the count of numbers with one dimension
/// (docs/strategies.md, "Rounded payloads"). Nothing if the strategy does not have the payload.
std::optional<double> payload_ratio(const Recorded& recorded, const std::string& payload);

/// Whether the seed's first steps were of the dense network; nothing where the record does not say.
std::optional<bool> begins_dense(const Recorded& recorded, const RecordedSeed& seed);
/// Seconds of a step of the dense network where the seed was recorded: of its first steps, by multiply-accumulates
/// where those were of a smaller one.
double dense_step_seconds(const Recorded& recorded, const RecordedSeed& seed);

/// The mean number of images at which the mean accuracy over the seeds first is `target` or more; nothing if it never
/// is.
std::optional<double> images_to(const Recorded& recorded, double target);
/// The best mean accuracy at any evaluation, or at the end.
double best_accuracy(const Recorded& recorded);

}  // namespace prunex::plan
