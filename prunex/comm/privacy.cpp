#include "prunex/comm/privacy.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "prunex/comm/meet/socket.h"

namespace prunex::comm {
namespace {

[[noreturn]] void refuse_secret(const std::string& source, const std::string& problem) {
  throw std::invalid_argument(fmt::format("{}: {}", source, problem));
}

std::string checked_secret(std::string secret, const std::string& source) {
  if (secret.ends_with('\n')) secret.pop_back();
  if (secret.ends_with('\r')) secret.pop_back();
  if (secret.empty()) refuse_secret(source, "got an empty secret, wanted one such as `openssl rand -hex 32` prints");
  if (secret.size() < kLeastSecretBytes || secret.size() > kMostSecretBytes) {
    const auto size = secret.size() > kMostSecretBytes ? fmt::format("more than {}", kMostSecretBytes)
                                                       : std::to_string(secret.size());
    refuse_secret(source,
                  fmt::format("got a secret of {} bytes, wanted {} to {}, such as `openssl rand -hex 32` prints", size,
                              kLeastSecretBytes, kMostSecretBytes));
  }
  return secret;
}

// A named pipe is not waited for.
std::string read_private_file(const std::string& path, const std::string& source) {
  const Socket file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd() < 0) refuse_secret(source, std::strerror(errno));
  struct stat status = {};
  if (fstat(file.fd(), &status) != 0) refuse_secret(source, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) refuse_secret(source, "it is not a regular file");
  constexpr mode_t kOthers = S_IRWXG | S_IRWXO;
  if ((status.st_mode & kOthers) != 0) {
    refuse_secret(source, fmt::format("mode {:04o} lets others than its owner use it, wanted 0600 (chmod 600)",
                                      status.st_mode & 07777));
  }
  std::string text(kMostSecretBytes + 3, '\0');  // and a line break, and to see that there is more
  size_t size = 0;
  for (ssize_t count = 1; count > 0 && size < text.size(); size += static_cast<size_t>(count)) {
    count = ::read(file.fd(), text.data() + size, text.size() - size);
    if (count < 0) refuse_secret(source, std::strerror(errno));
  }
  text.resize(size);
  return text;
}

}  // namespace

Privacy read_privacy(const std::string& file, bool encrypt) {
  const auto variable = [](const char* name) -> const char* { return std::getenv(name); };
  const Privacy privacy = {read_secret(file, variable), encrypt};
  if (!encrypt || !privacy.secret.empty()) return privacy;
  throw std::invalid_argument(fmt::format("`encrypt`: got no secret, wanted `secret_file` or {}", kSecretVariable));
}

std::string read_secret(const std::string& file, const Lookup& lookup) {
  if (!file.empty()) {
    const auto source = fmt::format("`secret_file`: {}", file);
    return checked_secret(read_private_file(file, source), source);
  }
  const char* value = lookup(kSecretVariable);
  return value == nullptr ? "" : checked_secret(value, kSecretVariable);
}

}  // namespace prunex::comm
