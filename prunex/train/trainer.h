// A training run, as one of its ranks sees it, and what is known of it before it begins.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "prunex/comm/hierarchy.h"
#include "prunex/sparsity/group.h"
#include "prunex/train/device_graph.h"
#include "prunex/train/division.h"
#include "prunex/train/images.h"
#include "prunex/train/metrics.h"
#include "prunex/train/network.h"
#include "prunex/train/options.h"
#include "prunex/train/product.h"
#include "prunex/train/pruning.h"
#include "prunex/train/run.h"
#include "prunex/train/schedule.h"

namespace prunex::train {

/// Trains, evaluates and leaves the run directory; collective over all ranks, with equal options. Rank 0 creates the
/// directory, writes metrics.jsonl, summary.json and the model, and `config` as config.toml; the others write nothing.
/// The same seed and layout give the same metrics but for the seconds. Throws std::invalid_argument for options that do
/// not fit the data or the model, std::runtime_error for failures, Interrupted if it was asked to stop. `make_graph`
/// makes what local steps on a device are recorded in.
Summary train(const TrainOptions& options, comm::Hierarchy& ranks, const std::string& config,
              StopRequest* stop = nullptr, const GraphMaker& make_graph = make_device_graph);

// check.cpp: whether a run could begin, and what it would be.

/// What a run is made of before its first step.
struct Prepared {
  RunImages images;
  int64_t training_images = 0;  ///< of all nodes
  Network network;
  std::shared_ptr<Teacher> teacher = {};  ///< null: none
  RunLength length;
  data::Dataset calibration;
  std::optional<Division> division = {};  ///< where nodes have images of their own
  PruningPlan pruning = {};
  std::vector<std::string> remarks = {};  ///< to be said at the start
};

/// Options, data, network and length of a run: whatever cannot be trained is refused here, for check() as for train().
/// Nothing is written. Collective where nodes read files of their own and there are `ranks`; without, every node's are
/// read, and the run is node 0's.
Prepared prepare(const TrainOptions& options, comm::Hierarchy* ranks = nullptr);

/// Part of it. Throws std::invalid_argument for a plan that cannot prune as asked: exchanges that never come, multiples
/// of more units than a group has. Returns a line for each thing that is allowed and likely to disappoint, with advice.
std::vector<std::string> check_plan(const TrainOptions& options, const RunLength& length,
                                    const std::vector<sparsity::Group>& groups);

/// What prepare() has found, in numbers.
struct Plan {
  std::vector<int64_t> image;  ///< channels, height, width
  int64_t classes = 0;
  Size size;  ///< of the whole network
  int64_t training_images = 0, validation_images = 0, test_images = 0;
  RunLength length;
  std::string group_words;
  std::vector<sparsity::Group> groups;  ///< that masks prune
  bool one_budget = false;              ///< for all of them: how many units each keeps will be found
  int64_t first_cut = 0, last_cut = 0;  ///< exchanges of cuts to a target; 0: none
  int64_t exchange_bytes = 0;           ///< that a node sends to others in an exchange of the whole network
  bool gradients = false;               ///< in every step instead; exchange_bytes are those of its local_steps
  std::vector<std::string> remarks;     ///< what train() would say at its start
};

Plan check(const TrainOptions& options);

}  // namespace prunex::train
