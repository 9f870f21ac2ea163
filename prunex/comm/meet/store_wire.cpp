#include "prunex/comm/meet/store.h"

#include <fmt/format.h>

#include <cstring>
#include <random>
#include <stdexcept>

namespace prunex::comm {
namespace {

template <class Head>
std::string bytes_of(const Head& head) {
  return {reinterpret_cast<const char*>(&head), sizeof(head)};
}

}  // namespace

LinkKey store_key(const Privacy& privacy, const std::string& token) {
  return link_key(privacy, "store", token);
}

std::string random_secret() {
  std::random_device random;
  constexpr size_t kDigits = 32;
  std::string secret;
  while (secret.size() < kDigits) secret += fmt::format("{:08x}", random());
  return secret;
}

bool take_request(std::string& received, StoreRequest& request) {
  if (received.size() < sizeof(StoreRequestHead)) return false;
  StoreRequestHead head;
  std::memcpy(&head, received.data(), sizeof(head));
  if (head.operation > StoreOperation::kRelease || head.key_bytes > kMostKeyBytes ||
      head.value_bytes > kMostValueBytes) {
    throw std::runtime_error("[comm] store: a request that is none");
  }
  const size_t bytes = sizeof(head) + head.key_bytes + head.value_bytes;
  if (received.size() < bytes) return false;
  request = {head, received.substr(sizeof(head), head.key_bytes),
             received.substr(sizeof(head) + head.key_bytes, head.value_bytes)};
  received.erase(0, bytes);
  return true;
}

std::string encode(const StoreRequest& request) {
  StoreRequestHead head = request.head;
  head.key_bytes = static_cast<uint32_t>(request.key.size());
  head.value_bytes = static_cast<uint32_t>(request.value.size());
  return bytes_of(head) + request.key + request.value;
}

std::string encode_reply(StoreAnswer answer, const std::string& value) {
  return bytes_of(StoreReplyHead{answer, static_cast<uint32_t>(value.size())}) + value;
}

}  // namespace prunex::comm
