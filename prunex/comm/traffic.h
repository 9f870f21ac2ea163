// What a communicator has sent, and the formulas it counts with.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace prunex::comm {

/// One kind of operation.
struct OperationTraffic {
  int64_t count = 0;
  int64_t payload_bytes = 0;
  int64_t sent_bytes = 0;
  std::vector<float> seconds;  ///< of each, waiting included; at most kSamples, the last ones

  static constexpr size_t kSamples = 4096;
  void add(int64_t payload, int64_t sent, double took);
  /// The q-quantile of the seconds, q in [0, 1]; 0 without operations.
  double quantile(double q) const;
};

/// Cumulative counts of one rank in one group. Bytes are tensor data; the few dozen bytes of headers per message are
/// not counted. A group of one rank counts nothing.
struct Traffic {
  int64_t operations = 0;
  int64_t payload_bytes = 0;  ///< bytes of the tensors handed in
  int64_t sent_bytes = 0;     ///< bytes this rank sent to others
  double seconds = 0;         ///< spent inside the calls, waiting included
  std::map<std::string, OperationTraffic> by_operation;
};

/// One rank's place in a group.
struct Place {
  int rank = 0;
  int size = 1;
};

/// Ring all-reduce of S bytes: reduce-scatter, then all-gather, of blocks b_0 … b_{n-1} of about S/n bytes (range.h).
/// Rank r sends 2S - |b_{r+1}| - |b_{r+2}|; all ranks together send exactly 2(n-1) S, on average 2(n-1)/n S each, which
/// is the least any all-reduce can send.
int64_t all_reduce_sent_bytes(int64_t elements, int64_t element_size, Place place);

/// Binomial tree: with v = (rank - root) mod n, rank v sends S bytes to each v + 2^i < n with 2^i > v. All ranks
/// together send (n-1) S, the root ceil(log2 n) S.
int64_t broadcast_sent_bytes(int64_t bytes, int root, Place place);

/// Every rank sends its S bytes to n-1 others.
int64_t all_gather_sent_bytes(int64_t input_bytes, Place place);

}  // namespace prunex::comm
