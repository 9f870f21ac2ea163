// TLS 1.3 on a connection whose ends share a key.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "prunex/comm/meet/proof.h"

struct ssl_st;
struct ssl_ctx_st;

namespace prunex::comm {

/// One end of TLS 1.3 (OpenSSL) with AES-128-GCM, the key as its external PSK and an ephemeral key exchange
/// (psk_dhe_ke), so that what was recorded stays secret even if the key does not. There are no certificates, no tickets
/// and no resumption. Never waits. Makes the process ignore SIGPIPE unless it handles it, since OpenSSL writes as it
/// likes.
class Tls {
 public:
  /// After so many bytes an end takes a new key: AES-GCM is not made for more than 2^24 full records with one (RFC
  /// 8446, 5.5).
  static constexpr int64_t kBytesPerKey = int64_t{1} << 36;

  Tls(int descriptor, Side side, const KeyBytes& key, int64_t bytes_per_key = kBytesPerKey);
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  /// Goes on with the handshake; whether it is done. Throws LinkRefused.
  bool shake_hands();
  /// What poll() is to wait for until then.
  short events() const;

  /// As send and recv of the system: 0 at the end, -1 and errno; EBADMSG where somebody has changed what was sent.
  ssize_t send(const void* data, size_t bytes);
  ssize_t receive(void* data, size_t bytes);

 private:
  ssize_t explain(int result);

  struct Free {
    void operator()(ssl_st* connection) const;
    void operator()(ssl_ctx_st* context) const;
  };
  const KeyBytes key_;
  const int64_t bytes_per_key_;
  int64_t bytes_left_;
  std::unique_ptr<ssl_ctx_st, Free> context_;
  std::unique_ptr<ssl_st, Free> connection_;
};

}  // namespace prunex::comm
