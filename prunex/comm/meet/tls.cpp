#include "prunex/comm/meet/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <string_view>

#include "prunex/comm/meet/socket.h"

namespace prunex::comm {
namespace {

constexpr std::string_view kIdentity = "prunex";
constexpr const char* kCipher = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kCipherNumber[] = {0x13, 0x01};
constexpr size_t kReadAhead = 64 << 10;  // four records with one call of the system

void expect(bool done) {
  if (!done) throw LinkRefused("OpenSSL cannot begin TLS 1.3");
}

// The key as a session that was agreed upon elsewhere; null if there is no memory.
SSL_SESSION* session_of(SSL* connection) {
  const auto& key = *static_cast<const KeyBytes*>(SSL_get_app_data(connection));
  SSL_SESSION* session = SSL_SESSION_new();
  const SSL_CIPHER* cipher = SSL_CIPHER_find(connection, kCipherNumber);
  const bool done =
      session != nullptr && cipher != nullptr && SSL_SESSION_set1_master_key(session, key.data(), key.size()) == 1 &&
      SSL_SESSION_set_cipher(session, cipher) == 1 && SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1;
  if (done) return session;
  SSL_SESSION_free(session);
  return nullptr;
}

int offer_key(SSL* connection, const EVP_MD*, const unsigned char** identity, size_t* bytes, SSL_SESSION** session) {
  *identity = reinterpret_cast<const unsigned char*>(kIdentity.data());
  *bytes = kIdentity.size();
  *session = session_of(connection);
  return *session != nullptr ? 1 : 0;
}

int find_key(SSL* connection, const unsigned char* identity, size_t bytes, SSL_SESSION** session) {
  const bool known = std::string_view(reinterpret_cast<const char*>(identity), bytes) == kIdentity;
  *session = known ? session_of(connection) : nullptr;
  return 1;
}

SSL_CTX* make_context(Side side) {
  SSL_CTX* context = SSL_CTX_new(TLS_method());
  expect(context != nullptr);
  SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  SSL_CTX_set_ciphersuites(context, kCipher);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_default_read_buffer_len(context, kReadAhead);
  SSL_CTX_set_read_ahead(context, 1);
  if (side == Side::kCaller) {
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);  // no certificate stands in for the key
    SSL_CTX_set_psk_use_session_callback(context, offer_key);
  } else {
    SSL_CTX_set_psk_find_session_callback(context, find_key);
  }
  return context;
}

}  // namespace

void Tls::Free::operator()(ssl_st* connection) const {
  SSL_free(connection);
}

void Tls::Free::operator()(ssl_ctx_st* context) const {
  SSL_CTX_free(context);
}

Tls::Tls(int descriptor, Side side, const KeyBytes& key, int64_t bytes_per_key)
    : key_(key),
      bytes_per_key_(bytes_per_key),
      bytes_left_(bytes_per_key),
      context_(make_context(side)),
      connection_(SSL_new(context_.get())) {
  ignore_broken_pipes();
  expect(connection_ && SSL_set_fd(connection_.get(), descriptor) == 1);
  SSL_set_app_data(connection_.get(), const_cast<KeyBytes*>(&key_));
  side == Side::kCaller ? SSL_set_connect_state(connection_.get()) : SSL_set_accept_state(connection_.get());
}

Tls::~Tls() = default;

bool Tls::shake_hands() {
  ERR_clear_error();
  const int result = SSL_do_handshake(connection_.get());
  if (result == 1) {
    // What else a peer might have been content with.
    if (SSL_session_reused(connection_.get()) != 1) throw LinkRefused("it has another secret");
    return true;
  }
  const int why = SSL_get_error(connection_.get(), result);
  if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) return false;
  throw LinkRefused("TLS cannot begin: somebody changes what is sent, or it ended");
}

short Tls::events() const {
  return SSL_want_write(connection_.get()) ? POLLOUT : POLLIN;
}

ssize_t Tls::send(const void* data, size_t bytes) {
  ERR_clear_error();
  const int result = SSL_write(connection_.get(), data, static_cast<int>(std::min<size_t>(bytes, INT_MAX)));
  if (result <= 0) {
    if (explain(result) == 0) errno = EPIPE;  // the peer has ended the session: OpenSSL says so of writes, too
    return -1;
  }
  bytes_left_ -= result;
  // In the middle of a record it is refused, and tried again.
  if (bytes_left_ <= 0 && SSL_key_update(connection_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1) {
    bytes_left_ = bytes_per_key_;
  }
  return result;
}

ssize_t Tls::receive(void* data, size_t bytes) {
  ERR_clear_error();
  const int result = SSL_read(connection_.get(), data, static_cast<int>(std::min<size_t>(bytes, INT_MAX)));
  return result > 0 ? result : explain(result);
}

ssize_t Tls::explain(int result) {
  const int error = errno;
  switch (SSL_get_error(connection_.get(), result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      errno = EAGAIN;
      return -1;
    case SSL_ERROR_ZERO_RETURN:
      return 0;
    case SSL_ERROR_SYSCALL:
      errno = error != 0 ? error : ECONNRESET;
      return -1;
    default:
      errno = EBADMSG;
      return -1;
  }
}

}  // namespace prunex::comm
