// What hosts a run's store, and its clients.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "prunex/comm/meet/link.h"
#include "prunex/comm/ports.h"
#include "prunex/comm/store.h"

namespace prunex::comm {

class Join;

/// What the clients of a run's store know: its secret, and a token that its launcher gave to its ranks.
LinkKey store_key(const Privacy& privacy, const std::string& token);

/// Where a store is, by name, and what its clients know.
struct StorePlace {
  std::string host;
  uint16_t port = 0;
  LinkKey key = {};
};
/// "host:port", as of an Endpoint.
std::string name_of(const StorePlace& place);

/// A client of a StoreServer. Throws std::runtime_error that says why if there is none before the rank's time to join
/// is over; meanwhile `join` is told.
std::unique_ptr<Store> reach_store(const StorePlace& place, Join& join);

/// The same for a c10d::TCPStore, as torchrun hosts it. prefix is put before every key and separates runs that share a
/// server.
std::unique_ptr<Store> reach_torch_store(const StorePlace& place, const std::string& prefix, Join& join);

/// Until somebody listens there. Throws like reach_store().
void wait_for_store(const StorePlace& place, Join& join);

struct StoreServerOptions {
  std::vector<std::string> hosts = {"127.0.0.1"};  ///< own numeric addresses to listen on, and no others
  uint16_t port = 0;                               ///< 0: a free one
  int ranks = 1;                                   ///< what it holds, and for how many, is bounded by them
  LinkKey key = {};                                ///< what clients must know
  PortRange ports = {};                            ///< where a free one is looked for
};

/// A thread that serves clients until this is destroyed or a client says that all ranks have joined: then it closes
/// everything. Keys are written once. Whoever proves nothing or sends what is no request is turned away; whoever is
/// silent holds nobody up; it keeps at most 2 connections per rank and 64 KiB of values per rank, and some spare.
class StoreServer {
 public:
  /// Throws std::runtime_error if it cannot listen.
  explicit StoreServer(const StoreServerOptions& options);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  uint16_t port() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

/// What one rank may leave there: an address, a place, a layout. Longer ones are refused before they are read.
inline constexpr size_t kMostKeyBytes = 128;
inline constexpr size_t kMostValueBytes = 16 << 10;

/// One that nobody guesses.
std::string random_secret();

enum class StoreOperation : uint32_t { kSet, kGet, kRelease };
enum class StoreAnswer : uint32_t { kDone, kNothing, kTaken, kFull };

struct StoreRequestHead {
  StoreOperation operation = StoreOperation::kGet;
  uint32_t key_bytes = 0;
  uint32_t value_bytes = 0;
  uint32_t wait_milliseconds = 0;  ///< kGet: how long to wait for the key
};

struct StoreReplyHead {
  StoreAnswer answer = StoreAnswer::kDone;
  uint32_t value_bytes = 0;
};

struct StoreRequest {
  StoreRequestHead head;
  std::string key, value;
};

/// Takes a request from the front of what a client sent. False if it is not there yet; throws std::runtime_error for
/// what can be none, before all of it has come.
bool take_request(std::string& received, StoreRequest& request);

std::string encode(const StoreRequest& request);
std::string encode_reply(StoreAnswer answer, const std::string& value = "");

}  // namespace prunex::comm
