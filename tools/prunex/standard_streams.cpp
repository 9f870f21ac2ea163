#include "tools/prunex/standard_streams.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio_ext.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <system_error>

namespace prunex::tools {

void prepare_standard_streams() {
  // open() takes the lowest number that is free, which is the one that was found closed. Input and output are opened
  // the wrong way round: using them fails, as if they were still closed.
  constexpr int kModes[] = {O_WRONLY, O_RDONLY, O_RDWR};
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) < 0 && errno == EBADF) open("/dev/null", kModes[descriptor]);
  }
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);
}

std::string output_problem() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return "";
  const auto why = errno == 0 ? "it is full or closed, or nobody reads it" : std::generic_category().message(errno);
  return fmt::format("cannot write standard output: {}", why);
}

void forget_output() {
  __fpurge(stdout);
  std::clearerr(stdout);
}

}  // namespace prunex::tools
