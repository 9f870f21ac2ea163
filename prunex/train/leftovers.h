// Units that masks left out and that are still in the network's shapes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "prunex/sparsity/cut.h"
#include "prunex/sparsity/group.h"

namespace prunex::train {

struct Leftover {
  std::string group;
  int64_t units = 0;   ///< that stay, as zeros
  std::string reason;  ///< why they cannot be removed
};

/// Of every group that has some. Coupled groups have none: all their units can be removed.
std::vector<Leftover> leftovers(const std::vector<sparsity::Group>& groups, const sparsity::Masks& masks,
                                const sparsity::Cut& cut);

}  // namespace prunex::train
