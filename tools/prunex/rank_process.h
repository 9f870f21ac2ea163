// One rank as a child process.
#pragma once

#include <sys/types.h>
#include <csignal>
#include <string>
#include <vector>

namespace prunex::tools {

struct RankProcess {
  int rank = 0;
  pid_t pid = 0;      ///< 0 once it has ended and been waited for
  int error_fd = -1;  ///< the read end of its standard error; -1 if inherited or at its end
};

struct Spawn {
  char** argv;                           ///< of this process
  std::vector<std::string> environment;  ///< NAME=value, beside this process's own, which they override
  sigset_t signals;                      ///< the mask of blocked signals the child starts with
  bool capture_error;
};

/// Starts this executable once more. The child is killed when this process ends, however it ends; the calling thread
/// must live as long. Throws std::runtime_error.
RankProcess spawn_rank(int rank, const Spawn& spawn);

}  // namespace prunex::tools
