// Directories that appear whole or not at all.
#pragma once

#include <string>

namespace prunex::io {

/// A file, or a directory with anything in it, at `path` is a std::invalid_argument that names `option`.
void check_new_or_empty(const std::string& path, const std::string& option);

/// A directory under construction, of a temporary name beside `path`, until commit() renames it. Without commit() the
/// destructor removes it with all it holds. `path` must be new or an empty directory; its parents are made.
class AtomicDirectory {
 public:
  explicit AtomicDirectory(std::string path);
  ~AtomicDirectory();
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  /// Where to write until commit().
  const std::string& path() const { return temporary_; }
  /// The final path wherever a message has the temporary one.
  std::string by_its_name(std::string message) const;

  void commit();

 private:
  std::string final_;
  std::string temporary_;
};

}  // namespace prunex::io
