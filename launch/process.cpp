#include "launch/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "launch/error_lines.h"

namespace prunex::launch {
namespace {

std::string_view name_of(std::string_view variable) {
  return variable.substr(0, variable.find('='));
}

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const auto& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  return pointers;
}

std::vector<char*> merged_environment(const std::vector<std::string>& additions) {
  std::vector<char*> merged = pointers_to(additions);
  for (char** variable = environ; *variable != nullptr; ++variable) {
    bool replaced = false;
    for (const auto& addition : additions) replaced = replaced || name_of(addition) == name_of(*variable);
    if (!replaced) merged.push_back(*variable);
  }
  merged.push_back(nullptr);
  return merged;
}

// Runs between fork and exec, beside threads that fork did not copy: only async-signal-safe calls.
[[noreturn]] void become(const ProcessOptions& options, char** words, char** environment, pid_t parent, int pipe) {
  prctl(PR_SET_PDEATHSIG, options.dies_by);
  if (getppid() != parent) _exit(1);
  if (!options.keeps_output) dup2(pipe, STDOUT_FILENO);
  if (!options.keeps_error) dup2(pipe, STDERR_FILENO);
  // Shells start background jobs with SIGINT ignored, which exec would keep.
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE, SIGCHLD}) std::signal(signal, SIG_DFL);
  sigset_t blocked;
  sigemptyset(&blocked);
  sigprocmask(SIG_SETMASK, options.blocked ? &*options.blocked : &blocked, nullptr);
  execve(options.program.c_str(), words, environment);
  for (const char* text : {"prunex: cannot start ", options.program.c_str(), ": ", strerrordesc_np(errno), "\n"}) {
    if (write(STDERR_FILENO, text, std::strlen(text)) < 0) break;
  }
  _exit(1);
}

}  // namespace

BlockedSignals::BlockedSignals(const std::vector<int>& signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  // Ignored, as a parent may have left it, it would never come, and children could not be waited for.
  if (sigismember(&set, SIGCHLD) == 1) std::signal(SIGCHLD, SIG_DFL);
  pthread_sigmask(SIG_BLOCK, &set, &previous_);
  descriptor_ = comm::opened(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

BlockedSignals::~BlockedSignals() {
  pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
}

std::optional<signalfd_siginfo> BlockedSignals::next() const {
  signalfd_siginfo info;
  if (::read(descriptor_.fd(), &info, sizeof(info)) != sizeof(info)) return std::nullopt;
  return info;
}

Process::Process(const std::string& what, const ProcessOptions& options) {
  int ends[2] = {-1, -1};
  const bool piped = !options.keeps_output || !options.keeps_error;
  if (piped && pipe2(ends, O_CLOEXEC) != 0) {
    throw std::runtime_error(fmt::format("cannot open a pipe to {}: {}", what, std::strerror(errno)));
  }
  auto words = pointers_to(options.words);
  words.push_back(nullptr);
  auto environment = merged_environment(options.environment);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) become(options, words.data(), environment.data(), parent, ends[1]);
  const int error = errno;
  descriptor_ = ends[0];
  if (piped) {
    close(ends[1]);
    fcntl(descriptor_, F_SETFL, O_NONBLOCK);
  }
  if (pid_ > 0) return;
  if (piped) close(descriptor_);
  throw std::runtime_error(fmt::format("cannot start {}: {}", what, std::strerror(error)));
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      status_(other.status_),
      partial_(std::move(other.partial_)) {}

Process::~Process() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (descriptor_ >= 0) close(descriptor_);
}

std::string Process::read() {
  std::string bytes;
  char buffer[4096];
  ssize_t count = 0;
  while (descriptor_ >= 0 && (count = ::read(descriptor_, buffer, sizeof(buffer))) > 0) {
    bytes.append(buffer, static_cast<size_t>(count));
  }
  const bool later = count < 0 && (errno == EAGAIN || errno == EINTR);
  if (descriptor_ >= 0 && !later) close(std::exchange(descriptor_, -1));
  return bytes;
}

std::vector<std::string> Process::read_lines() {
  std::vector<std::string> lines;
  for (const char byte : read()) {
    if (byte != '\n' && byte != '\r') {
      partial_ += byte;
    } else if (!partial_.empty()) {
      lines.push_back(std::exchange(partial_, {}));
    }
  }
  return lines;
}

bool Process::ended() {
  if (pid_ > 0 && waitpid(pid_, &status_, WNOHANG) == pid_) pid_ = 0;
  return pid_ == 0;
}

void Process::signal(int number) const {
  if (pid_ > 0) kill(pid_, number);
}

std::string error_of_run(const ProcessOptions& options) {
  Process child(options.words.front(), options);
  std::string last;
  const auto keep_last = [&] {
    for (auto& line : child.read_lines()) last = std::move(line);
  };
  while (!child.ended()) {
    pollfd descriptor{child.descriptor(), POLLIN, 0};
    poll(&descriptor, 1, 200);
    keep_last();
  }
  keep_last();
  const int status = child.status();
  if (status == 0 || !last.empty()) return status == 0 ? "" : message_of(last);
  return WIFSIGNALED(status) ? fmt::format("killed by signal {}", WTERMSIG(status))
                             : fmt::format("status {}", WEXITSTATUS(status));
}

}  // namespace prunex::launch
