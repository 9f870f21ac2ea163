// Directories: of a run, and such as appear whole or not at all.
#pragma once

#include <string>

namespace prunex::io {

/// What a run directory is called after. A path counts as its file name without extension.
struct RunName {
  std::string dataset;
  std::string model;
  std::string strategy;
};

/// Keeps other processes out of a directory as long as it lives; the kernel lets go of it when a process is killed.
class DirectoryLock {
 public:
  /// Throws std::runtime_error, "PATH: another WHO is at work in it", if there is one.
  DirectoryLock(const std::string& path, const std::string& who);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  int descriptor_;
};

/// Creates `path` and its parents. An existing directory without files, or with temporary ones only, will do; anything
/// else at `path` is a std::invalid_argument that names `run_dir`.
void create_run_directory(const std::string& path);

/// Creates ROOT/<dataset>-<model>-<strategy>-<n> with the first free n, counting from 1, and returns its path.
/// Runs that start at the same time get different directories.
std::string create_next_run_directory(const std::string& root, const RunName& name);

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
