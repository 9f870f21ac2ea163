// This executable once more, with other arguments.
#pragma once

#include <sys/types.h>
#include <csignal>
#include <string>
#include <string_view>
#include <vector>

namespace prunex::tools {

/// A process whose standard output and error arrive line by line through one descriptor. It is killed when this one
/// ends, however it ends; the thread that started it must live as long.
class ChildProcess {
 public:
  /// `program` is run with `arguments`, the first of which is its name. Signals are not blocked in it. Throws
  /// std::runtime_error.
  ChildProcess(const std::string& program, const std::vector<std::string>& arguments);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  int descriptor() const { return output_; }
  /// Reads what there is without waiting and returns the lines that were completed; carriage returns end lines, too.
  std::vector<std::string> read_lines();
  /// Whether it has ended; then status() is that of waitpid.
  bool ended();
  int status() const { return status_; }
  void signal(int number) const;

 private:
  pid_t pid_ = 0;
  int output_ = -1;
  int status_ = 0;
  std::string partial_;
};

/// A process that has ended: what waitpid said, and its last line of output or error.
struct Ending {
  int status = 0;
  std::string last_line;

  /// Empty for success, else the last line, or what ended it.
  std::string error() const;
};
/// Runs it to its end.
Ending run_to_end(const std::string& program, const std::vector<std::string>& arguments);

/// The path of the running executable, for ChildProcess.
inline constexpr const char* kThisProgram = "/proc/self/exe";

}  // namespace prunex::tools
