// What a node that joins a run goes on from.
#pragma once

#include <string>

#include "prunex/comm/communicator.h"
#include "prunex/train/local_step.h"
#include "prunex/train/run/checkpoint.h"

namespace prunex::train {

/// Of a checkpoint of another node: instead of what is that node's or a rank's own, what a node that has just joined
/// begins with.
void forget_own(Checkpoint& checkpoint);

struct Handover {
  Checkpoint checkpoint;  ///< as of a rank without a share of its own
  std::string run_directory;
  Arithmetic arithmetic = Arithmetic::kFp32;  ///< of local steps
  int ranks = 1;                              ///< among which images are divided, before it has taken part
};

/// As bytes on a node's first rank, without what is a node's or a rank's own, of which only names and sizes are told;
/// and back, as the rank that has that place in `node`. `config`: the resolved options; taken over by a run with the
/// same ones only. Collective over the node. Throws std::invalid_argument for other options, std::runtime_error for
/// bytes that are damaged.
std::string to_bytes(const Handover& handover, const std::string& config, comm::Communicator& node);
Handover take_over(std::string bytes, const std::string& config, const comm::Communicator& node);

}  // namespace prunex::train
