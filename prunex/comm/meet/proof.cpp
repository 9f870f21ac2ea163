#include "prunex/comm/meet/proof.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <utility>

namespace prunex::comm {
namespace {

constexpr size_t kNonceBytes = 32;
constexpr std::string_view kPlain = "prunex link 1 p\n", kEncrypted = "prunex link 1 e\n";
constexpr std::string_view kSalt = "prunex link 1";

std::string random_nonce() {
  std::string nonce(kNonceBytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), static_cast<int>(nonce.size())) != 1) {
    throw std::runtime_error("[comm] the system has no random numbers");
  }
  return nonce;
}

}  // namespace

KeyBytes hmac_sha256(std::string_view key, std::string_view message) {
  KeyBytes bytes = {};
  unsigned int size = 0;
  const auto* data = reinterpret_cast<const unsigned char*>(message.data());
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), data, message.size(), bytes.data(), &size) ==
          nullptr ||
      size != bytes.size()) {
    throw std::runtime_error("[comm] OpenSSL computes no HMAC-SHA256");
  }
  return bytes;
}

std::string_view text_of(const KeyBytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Extract, then expand to one block: T(1) = HMAC(PRK, info, 0x01). The purpose is a word, so that its end is seen.
LinkKey link_key(const Privacy& privacy, std::string_view purpose, std::string_view token) {
  const KeyBytes extracted = hmac_sha256(kSalt, privacy.secret);
  std::string info(purpose);
  info += '\0';
  info += token;
  info += '\x01';
  return {hmac_sha256(text_of(extracted), info), privacy.encrypt};
}

Proof::Proof(Side side, const LinkKey& key)
    : side_(side),
      key_(key),
      greeting_(key.encrypts ? kEncrypted : kPlain),
      nonce_(random_nonce()),
      wants_(greeting_.size()) {
  if (side == Side::kCaller) {
    callers_ = nonce_;
  } else {
    answerers_ = nonce_;
    unsent_ = greeting_ + nonce_;
  }
}

std::string Proof::take_unsent() {
  return std::exchange(unsent_, "");
}

void Proof::take(std::string_view message) {
  switch (stage_) {
    case Stage::kGreeting:
      check_greeting(message);
      stage_ = Stage::kNonce;
      wants_ = kNonceBytes;
      break;
    case Stage::kNonce:
      (side_ == Side::kCaller ? answerers_ : callers_) = message;
      if (side_ == Side::kCaller) unsent_ = greeting_ + nonce_ + std::string(text_of(mac("caller")));
      stage_ = Stage::kMac;
      wants_ = kKeyBytes;
      break;
    case Stage::kMac:
      answer(message);
      stage_ = Stage::kDone;
      wants_ = 0;
      break;
    case Stage::kDone:
      break;
  }
}

void Proof::check_greeting(std::string_view message) {
  if (message == greeting_) return;
  if (message == kEncrypted) throw LinkRefused("it encrypts what it sends (`encrypt`), this rank does not");
  if (message == kPlain) throw LinkRefused("it does not encrypt what it sends (`encrypt`), this rank does");
  throw LinkRefused("another program answers there");
}

void Proof::answer(std::string_view message) {
  const KeyBytes wanted = mac(side_ == Side::kCaller ? "answerer" : "caller");
  if (CRYPTO_memcmp(wanted.data(), message.data(), wanted.size()) != 0) throw LinkRefused("it has another secret");
  if (side_ == Side::kAnswerer) unsent_ = text_of(mac("answerer"));
}

std::string Proof::why_ended() const {
  return stage_ == Stage::kMac ? "it has another secret" : "another program answers there";
}

KeyBytes Proof::mac(std::string_view word) const {
  return hmac_sha256(text_of(key_.bytes), fmt::format("{}\n", word) + greeting_ + answerers_ + callers_);
}

}  // namespace prunex::comm
