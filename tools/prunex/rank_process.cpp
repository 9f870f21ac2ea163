#include "tools/prunex/rank_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <string_view>

namespace prunex::tools {
namespace {

std::string_view name_of(std::string_view variable) {
  return variable.substr(0, variable.find('='));
}

std::vector<char*> merged_environment(const std::vector<std::string>& additions) {
  std::vector<char*> merged;
  for (const auto& addition : additions) merged.push_back(const_cast<char*>(addition.c_str()));
  for (char** variable = environ; *variable != nullptr; ++variable) {
    bool replaced = false;
    for (const auto& addition : additions) replaced = replaced || name_of(addition) == name_of(*variable);
    if (!replaced) merged.push_back(*variable);
  }
  merged.push_back(nullptr);
  return merged;
}

// Runs between fork and exec, beside threads that fork did not copy: only async-signal-safe calls.
[[noreturn]] void become_rank(const Spawn& spawn, char** environment, pid_t parent, int error_fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  if (error_fd >= 0) dup2(error_fd, STDERR_FILENO);
  // Shells start background jobs with SIGINT ignored, which exec would keep: the launcher passes it on.
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
  sigprocmask(SIG_SETMASK, &spawn.signals, nullptr);
  execve("/proc/self/exe", spawn.argv, environment);
  for (const char* text : {"prunex: cannot start ranks: /proc/self/exe: ", strerrordesc_np(errno), "\n"}) {
    if (write(STDERR_FILENO, text, std::strlen(text)) < 0) break;
  }
  _exit(1);
}

}  // namespace

RankProcess spawn_rank(int rank, const Spawn& spawn) {
  int error_pipe[2] = {-1, -1};
  if (spawn.capture_error && pipe2(error_pipe, O_CLOEXEC) != 0) {
    throw std::runtime_error(fmt::format("cannot open a pipe to rank {}: {}", rank, std::strerror(errno)));
  }
  auto environment = merged_environment(spawn.environment);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) become_rank(spawn, environment.data(), parent, error_pipe[1]);
  const int error = errno;
  if (spawn.capture_error) close(error_pipe[1]);
  if (pid > 0) return {rank, pid, error_pipe[0]};
  if (spawn.capture_error) close(error_pipe[0]);
  throw std::runtime_error(fmt::format("cannot start rank {}: {}", rank, std::strerror(error)));
}

}  // namespace prunex::tools
