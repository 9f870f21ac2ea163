// What a store's server and its clients say to each other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace prunex::comm {

/// What one rank may leave there: an address, a place, a layout. Longer ones are refused before they are read.
inline constexpr size_t kMostKeyBytes = 128;
inline constexpr size_t kMostValueBytes = 16 << 10;

/// First word of both ends; the client's goes on with the secret, and whoever has another one is turned away.
inline constexpr std::array<char, 16> kStoreGreeting = {"prunex store 1\n"};
inline constexpr size_t kSecretBytes = 32;

/// The client's first bytes. Throws std::invalid_argument if the secret is too long.
std::string store_hello(const std::string& secret);

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
