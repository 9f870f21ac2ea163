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

struct TcpStoreOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;        ///< 0, for a server only: a free one
  bool server = false;      ///< host the store in this process too
  std::string prefix = "";  ///< put before every key: separates runs that share a store
  std::chrono::milliseconds timeout = std::chrono::minutes(5);  ///< to reach the server
};

/// A client of c10d::TCPStore; throws std::runtime_error if the server does not answer. The server lives as long as the
/// returned object.
std::unique_ptr<Store> make_tcp_store(const TcpStoreOptions& options);

}  // namespace prunex::comm
