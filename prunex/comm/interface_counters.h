// What the kernel counted on network interfaces, next to what communicators count.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "prunex/comm/communicator.h"
#include "prunex/comm/layout.h"

namespace prunex::comm {

/// The kernel's table of the interfaces of the calling thread's network namespace.
inline constexpr const char* kInterfaceTable = "/proc/thread-self/net/dev";

struct InterfaceBytes {
  int64_t sent = 0;
  int64_t received = 0;
};

/// Since the interface came up, headers included. Throws std::runtime_error if the table has no such interface.
InterfaceBytes read_interface(const std::string& name, const std::string& table = kInterfaceTable);

/// By interface, one entry per node.
using NodeInterfaceBytes = std::map<std::string, std::vector<InterfaceBytes>>;

/// Everything that crosses these interfaces of a node while it lives: whatever program sends it, headers,
/// acknowledgements and heartbeats included. Nodes on one machine count the same bytes.
class InterfaceCounters {
 public:
  explicit InterfaceCounters(std::vector<std::string> names, std::string table = kInterfaceTable);

  /// The bytes so far, as local rank 0 of every node reads them. All ranks must call, with the same names.
  NodeInterfaceBytes gather(const Layout& layout, Communicator& world) const;

 private:
  std::vector<std::string> names_;
  std::string table_;
  std::vector<InterfaceBytes> begin_;
};

}  // namespace prunex::comm
