#include "tools/prunex/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace prunex::tools {
namespace {

/// Between fork and exec: only async-signal-safe calls.
[[noreturn]] void become(const char* program, char* const* arguments, pid_t parent, int output) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : {SIGINT, SIGTERM, SIGPIPE}) std::signal(number, SIG_DFL);
  execv(program, arguments);
  _exit(127);
}

}  // namespace

ChildProcess::ChildProcess(const std::string& program, const std::vector<std::string>& arguments) {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw std::runtime_error(fmt::format("cannot open a pipe: {}", std::strerror(errno)));
  std::vector<char*> words;
  for (const auto& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) become(program.c_str(), words.data(), parent, ends[1]);
  const int error = errno;
  close(ends[1]);
  output_ = ends[0];
  fcntl(output_, F_SETFL, O_NONBLOCK);
  if (pid_ < 0) {
    close(output_);
    throw std::runtime_error(fmt::format("cannot start {}: {}", arguments.front(), std::strerror(error)));
  }
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(output_);
}

std::vector<std::string> ChildProcess::read_lines() {
  std::vector<std::string> lines;
  char buffer[4096];
  for (ssize_t count = 0; (count = read(output_, buffer, sizeof(buffer))) > 0;) {
    for (const char byte : std::string_view(buffer, static_cast<size_t>(count))) {
      if (byte != '\n' && byte != '\r') {
        partial_ += byte;
      } else if (!partial_.empty()) {
        lines.push_back(std::move(partial_));
        partial_.clear();
      }
    }
  }
  return lines;
}

bool ChildProcess::ended() {
  if (pid_ > 0 && waitpid(pid_, &status_, WNOHANG) == pid_) pid_ = 0;
  return pid_ == 0;
}

void ChildProcess::signal(int number) const {
  if (pid_ > 0) kill(pid_, number);
}

std::string Ending::error() const {
  if (status == 0) return "";
  if (!last_line.empty()) return last_line;
  return WIFSIGNALED(status) ? fmt::format("killed by signal {}", WTERMSIG(status))
                             : fmt::format("status {}", WEXITSTATUS(status));
}

Ending run_to_end(const std::string& program, const std::vector<std::string>& arguments) {
  ChildProcess child(program, arguments);
  Ending ending;
  const auto keep_last = [&] {
    for (auto& line : child.read_lines()) ending.last_line = std::move(line);
  };
  while (!child.ended()) {
    pollfd descriptor{child.descriptor(), POLLIN, 0};
    poll(&descriptor, 1, 200);
    keep_last();
  }
  keep_last();
  ending.status = child.status();
  return ending;
}

}  // namespace prunex::tools
