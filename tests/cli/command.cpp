#include "tests/cli/command.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

namespace prunex::cli {
namespace {

/// Between fork and exec.
[[noreturn]] void become_command(const std::string& directory, std::vector<char*> argv, int output, int errors) {
  dup2(output, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  // a shell has them ignored for what it runs in the background, and the tests that send them would wait for ever
  for (const int number : {SIGHUP, SIGINT, SIGQUIT}) std::signal(number, SIG_DFL);
  if (chdir(directory.c_str()) != 0) _exit(126);
  execv(argv[0], argv.data());
  _exit(127);
}

int start(const std::string& directory, const std::vector<std::string>& words, int output, int errors) {
  setenv("OMP_NUM_THREADS", "1", 1);
  std::vector<char*> argv;
  for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const int pid = fork();
  if (pid == 0) become_command(directory, argv, output, errors);
  return pid;
}

int wait_for_end(int pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// A file without a name.
class Scrap {
 public:
  Scrap() : file_(std::tmpfile()) {}
  ~Scrap() { std::fclose(file_); }
  Scrap(const Scrap&) = delete;
  Scrap& operator=(const Scrap&) = delete;

  int descriptor() const { return fileno(file_); }
  std::string text() const {
    std::rewind(file_);
    std::string text;
    for (int byte = 0; (byte = std::fgetc(file_)) != EOF;) text += static_cast<char>(byte);
    return text;
  }

 private:
  std::FILE* file_;
};

}  // namespace

std::vector<std::string> errors_of(const Result& result) {
  const auto is_progress = [](const std::string& line) {
    return line.starts_with("exchange ") || line.find(", run directory ") != std::string::npos;
  };
  std::vector<std::string> errors;
  std::istringstream lines(result.errors);
  for (std::string line; std::getline(lines, line);) {
    if (!is_progress(line) && line.find("warning") == std::string::npos) errors.push_back(line);
  }
  return errors;
}

std::vector<std::string> prunex(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), PRUNEX_BINARY);
  return arguments;
}

std::vector<std::string> endless_elastic_run(const std::vector<std::string>& more) {
  auto words =
      prunex({"train", "--elastic", "--samples", "320", "--model", "resnet8", "--batch-size", "8", "--exchanges",
              "4000", "--local-steps", "2", "--eval-every", "0", "--checkpoint-every", "1000000", "--run-dir", "run"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::vector<std::string> as_rank(int rank, int ranks, int port, const std::vector<std::string>& command,
                                 int ranks_per_node) {
  std::vector<std::string> words = {"/usr/bin/env",
                                    "RANK=" + std::to_string(rank),
                                    "WORLD_SIZE=" + std::to_string(ranks),
                                    "LOCAL_WORLD_SIZE=" + std::to_string(ranks_per_node),
                                    "LOCAL_RANK=" + std::to_string(rank % ranks_per_node),
                                    "GROUP_RANK=" + std::to_string(rank / ranks_per_node),
                                    "MASTER_ADDR=127.0.0.1",
                                    "MASTER_PORT=" + std::to_string(port)};
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

std::string write_secret(const std::string& path, const std::string& secret, mode_t mode) {
  std::ofstream(path) << secret << "\n";
  chmod(path.c_str(), mode);
  return path;
}

Result run(const std::string& directory, const std::vector<std::string>& arguments) {
  return run_program(directory, prunex(arguments));
}

Result run_program(const std::string& directory, const std::vector<std::string>& words) {
  const Scrap output, errors;
  const int status = wait_for_end(start(directory, words, output.descriptor(), errors.descriptor()));
  return {status, output.text(), errors.text()};
}

Running::Running(const std::string& directory, const std::vector<std::string>& words) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  pid_ = start(directory, words, nowhere, ends[1]);
  close(nowhere);
  close(ends[1]);
  error_fd_ = ends[0];
}

Running::~Running() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    wait_for_end(pid_);
  }
  close(error_fd_);
}

std::vector<int> Running::children() const {
  std::ifstream file("/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) + "/children");
  return {std::istream_iterator<int>(file), {}};
}

bool Running::read_some() {
  std::array<char, 4096> buffer;
  const auto count = read(error_fd_, buffer.data(), buffer.size());
  if (count > 0) errors_.append(buffer.data(), count);
  return count > 0;
}

bool Running::wait_for(const std::string& text) {
  size_t found;
  while ((found = errors_.find(text, waited_for_)) == std::string::npos) {
    if (!read_some()) return false;
  }
  waited_for_ = found + text.size();
  return true;
}

Result Running::finish() {
  while (read_some()) {
  }
  const int status = wait_for_end(pid_);
  pid_ = 0;
  return {status, "", errors_};
}

}  // namespace prunex::cli
