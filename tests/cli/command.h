// The command, as a shell runs it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace prunex::cli {

struct Result {
  int status = 0;  ///< exit code, or minus the signal that ended it
  std::string output, errors;
};

/// The lines of `errors` that are neither progress nor warnings.
std::vector<std::string> errors_of(const Result& result);

/// prunex with these arguments: the words of the command.
std::vector<std::string> prunex(std::vector<std::string> arguments);

/// prunex train for a run of ResNet-8 on 320 images that lasts until somebody ends it, in `run`.
std::vector<std::string> endless_elastic_run(const std::vector<std::string>& more);

/// A command of one of so many ranks, by the variables of a launcher on this machine.
std::vector<std::string> as_rank(int rank, int ranks, int port, const std::vector<std::string>& command,
                                 int ranks_per_node = 1);

/// Its path; by default its owner alone may read it.
std::string write_secret(const std::string& path, const std::string& secret, mode_t mode = 0600);

/// Runs prunex with these arguments in `directory`, one thread, to its end.
Result run(const std::string& directory, const std::vector<std::string>& arguments);

/// The same for any program; the first word is its path.
Result run_program(const std::string& directory, const std::vector<std::string>& words);

/// A program running in the background, with its errors in a pipe.
class Running {
 public:
  Running(const std::string& directory, const std::vector<std::string>& words);
  ~Running();  ///< kills it
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  int pid() const { return pid_; }
  /// Process ids of its children.
  std::vector<int> children() const;
  /// Reads until `text` is said on standard error, behind what was waited for before, or the end.
  bool wait_for(const std::string& text);
  /// Reads to the end, which comes when it and all processes that share its pipe have ended.
  Result finish();

 private:
  bool read_some();

  int pid_ = 0;
  int error_fd_ = -1;
  std::string errors_;
  size_t waited_for_ = 0;  // of them
};

}  // namespace prunex::cli
