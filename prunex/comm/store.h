// A small key-value store through which ranks find each other.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

namespace prunex::comm {

/// Shared by all ranks of a run; every key is written once. Safe to use from several threads. Values are what others
/// wrote: readers check them.
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// The key's value, waiting for it up to timeout; nothing if it did not come.
  virtual std::optional<std::string> get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  /// All ranks have joined: nobody needs the store any more. From one rank.
  virtual void release() {}
};

/// For ranks that are threads of one process.
std::unique_ptr<Store> make_memory_store();

}  // namespace prunex::comm
