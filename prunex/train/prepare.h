// Whether a run could begin, and what it would be.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "prunex/comm/hierarchy.h"
#include "prunex/sparsity/group.h"
#include "prunex/train/images/division.h"
#include "prunex/train/images/images.h"
#include "prunex/train/network.h"
#include "prunex/train/options.h"
#include "prunex/train/product.h"
#include "prunex/train/pruning/pruning.h"
#include "prunex/train/schedule.h"
#include "prunex/train/teacher.h"

namespace prunex::train {

/// What a run is made of before its first step.
struct Prepared {
  RunImages images;
  int64_t training_images = 0;  ///< of all nodes
  Network network;
  std::shared_ptr<const Teacher> teacher = {};  ///< of a file; null: none
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
struct RunPreview {
  std::vector<int64_t> image;  ///< channels, height, width
  int64_t classes = 0;
  prune::Size size;  ///< of the whole network
  int64_t training_images = 0, validation_images = 0, test_images = 0;
  RunLength length;
  std::string group_words;
  std::vector<sparsity::Group> groups;         ///< that masks prune
  bool one_budget = false;                     ///< for all of them: how many units each keeps will be found
  std::optional<int64_t> first_cut, last_cut;  ///< exchanges of cuts to a target, 0 being before the first step
  int64_t exchange_bytes = 0;                  ///< that a node sends to others in an exchange of the whole network
  bool gradients = false;                      ///< in every step instead; exchange_bytes are those of its local_steps
  std::vector<std::string> remarks;            ///< what train() would say at its start
};

RunPreview check(const TrainOptions& options);

}  // namespace prunex::train
