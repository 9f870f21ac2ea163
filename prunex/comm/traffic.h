// What a communicator has sent, the formulas it counts with, and what the kernel counted beside it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace prunex::comm {

class Communicator;
struct Layout;

/// What one operation moves, seen from one rank.
struct Volume {
  int64_t payload = 0;        ///< bytes of the tensors handed in
  int64_t sent = 0;           ///< bytes this rank sends to others
  int64_t sent_to_nodes = 0;  ///< of those, to ranks on other nodes
  double least_to_nodes = 0;  ///< what a rank must send to other nodes on average, whatever the algorithm

  Volume& operator+=(const Volume& other);
};
Volume operator-(const Volume& a, const Volume& b);

/// One kind of operation.
struct OperationTraffic {
  int64_t count = 0;
  int64_t payload_bytes = 0;
  int64_t sent_bytes = 0;
  std::vector<float> seconds;  ///< of each, waiting included; at most kSamples, the last ones

  static constexpr size_t kSamples = 4096;
  void add(int64_t payload, int64_t sent, double took);
  OperationTraffic& operator+=(const OperationTraffic& later);
  /// The q-quantile of the seconds, q in [0, 1]; 0 without operations.
  double quantile(double q) const;
};

/// Cumulative counts of one rank in one group. Bytes are tensor data; the few dozen bytes of headers per message are
/// not counted. A group of one rank counts nothing.
struct Traffic {
  int64_t operations = 0;
  Volume bytes;
  double seconds = 0;  ///< spent inside the calls, waiting included
  std::map<std::string, OperationTraffic> by_operation;

  Traffic& operator+=(const Traffic& later);
};

/// One rank's place in a group.
struct Place {
  int rank = 0;
  int size = 1;
};

/// Ring all-reduce of S bytes: reduce-scatter, then all-gather, of blocks b_0 … b_{n-1} of about S/n bytes
/// (communicator.h). Rank r sends 2S - |b_{r+1}| - |b_{r+2}|; all ranks together send exactly 2(n-1) S, on average
/// 2(n-1)/n S each, which is the least any all-reduce can send.
int64_t all_reduce_sent_bytes(int64_t elements, int64_t element_size, Place place);

/// The binomial tree that broadcasts go down: a rank's neighbours.
struct Tree {
  int parent = -1;  ///< -1: the root
  std::vector<int> children;
};

/// With v = (rank - root) mod n, rank v's children are v + 2^i < n with 2^i > v.
Tree binomial_tree(int root, Place place);

/// The kernel's table of the interfaces of the calling thread's network namespace.
inline constexpr const char* kInterfaceTable = "/proc/thread-self/net/dev";

struct InterfaceBytes {
  int64_t sent = 0;
  int64_t received = 0;

  InterfaceBytes& operator+=(const InterfaceBytes& other);
};

/// Since the interface came up, headers included. Throws std::runtime_error if the table has no such interface.
InterfaceBytes read_interface(const std::string& name, const std::string& table = kInterfaceTable);

/// By interface, one entry per node: zeros for nodes that do not have it.
using NodeInterfaceBytes = std::map<std::string, std::vector<InterfaceBytes>>;

/// Everything that crosses these interfaces of a node while it lives: whatever program sends it, headers,
/// acknowledgements and heartbeats included. Nodes on one machine count the same bytes.
class InterfaceCounters {
 public:
  explicit InterfaceCounters(std::vector<std::string> names, std::string table = kInterfaceTable);

  /// The bytes so far, as local rank 0 of every node reads them. All ranks must call; nodes may have other names.
  NodeInterfaceBytes gather(const Layout& layout, Communicator& world) const;

 private:
  std::vector<std::string> names_;
  std::string table_;
  std::vector<InterfaceBytes> begin_;
};

}  // namespace prunex::comm
