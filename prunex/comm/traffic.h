// What a communicator has sent.
#pragma once

#include <cstdint>

namespace prunex::comm {

/// Cumulative counts of one rank in one group of n ranks. Bytes are those of the algorithms the backend runs:
/// a ring all-reduce of S bytes sends 2(n-1)/n S per rank, which is also the bound for any algorithm.
struct Traffic {
  int64_t operations = 0;
  int64_t payload_bytes = 0;  ///< bytes of the tensors handed in
  int64_t sent_bytes = 0;     ///< bytes this rank sent to others
  double seconds = 0;         ///< spent inside the calls, waiting included
};

}  // namespace prunex::comm
