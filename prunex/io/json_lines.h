// JSON lines: a file that grows by one object per line.
#pragma once

#include <string>
#include <string_view>

namespace prunex::io {

/// Appends to `path`, which is created if absent. Each line is with the operating system when append() returns, so
/// that a reader that follows the file, or a run that dies, never sees half a line. Lines for which there is no room
/// wait in memory, in order, and are written by the first call that finds some.
class JsonLines {
 public:
  explicit JsonLines(std::string path);
  ~JsonLines();
  JsonLines(const JsonLines&) = delete;
  JsonLines& operator=(const JsonLines&) = delete;

  /// `object` is serialized JSON without a line break. Throws std::runtime_error naming the file if it cannot grow; the
  /// line waits then.
  void append(std::string_view object);
  /// Tries again to write what waits; throws likewise.
  void flush();

 private:
  std::string path_;
  int descriptor_;
  std::string waiting_;
};

}  // namespace prunex::io
