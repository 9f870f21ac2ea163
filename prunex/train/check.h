// Whether a run could begin, and what it would be.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "prunex/sparsity/group.h"
#include "prunex/train/options.h"
#include "prunex/train/product.h"
#include "prunex/train/schedule.h"

namespace prunex::train {

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

/// Options, data, network and length of a run, all that train() would refuse before its first step; without ranks, and
/// without writing anything. Throws what train() would throw.
Plan check(const TrainOptions& options);

}  // namespace prunex::train
