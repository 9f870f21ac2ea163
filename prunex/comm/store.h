// A small key-value store through which ranks find each other.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace prunex::comm {

/// Shared by all ranks of a run; every key is written once. Safe to use from several threads.
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// The key's value, waiting for it up to timeout; nothing if it did not come.
  virtual std::optional<std::string> get(const std::string& key, std::chrono::milliseconds timeout) = 0;
};

/// For ranks that are threads of one process.
std::unique_ptr<Store> make_memory_store();

struct TcpStore {
  std::unique_ptr<Store> store;
  uint16_t port = 0;
};

/// Hosts a c10d::TCPStore in this process, on the port or, for 0, a free one; it lives as long as the store. prefix is
/// put before every key and separates runs that share a server. Throws std::runtime_error if the port is taken.
TcpStore host_tcp_store(uint16_t port, const std::string& prefix = "");

/// A client of a c10d::TCPStore, as torchrun and host_tcp_store host it. Throws std::runtime_error if it does not
/// answer within the timeout.
std::unique_ptr<Store> reach_tcp_store(const std::string& host, uint16_t port, const std::string& prefix,
                                       std::chrono::milliseconds timeout);

}  // namespace prunex::comm
