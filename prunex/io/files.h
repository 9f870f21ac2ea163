// Files and directories that appear whole or not at all, those of runs among them, and files that grow record by
// record.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace prunex::io {

/// A file under construction: bytes go to a temporary name in the same folder until commit() renames it to `path`.
/// Without commit() the destructor removes it, and what stood at `path` before is untouched. A symbolic link stays one:
/// what it leads to is replaced. A device or a pipe is written as it is, and so is what standard output or another open
/// descriptor (/dev/stdout, /dev/fd/N) leads to, from where it is.
/// Every failure (no such folder, no permission, full disk) is a std::runtime_error that names `path`.
class AtomicFile {
 public:
  /// `mode`: permissions of a new file, less what the umask takes away. One that is replaced has no others than before.
  explicit AtomicFile(std::string path, unsigned mode = 0666);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void append(const void* data, size_t bytes);
  void append(std::string_view text) { append(text.data(), text.size()); }

  /// Waits for the disk and puts the file in place. Call once, last.
  void commit();

 private:
  std::string path_;
  std::string target_;     // where links lead from `path_`; empty for a device or a pipe
  std::string temporary_;  // likewise, and empty once it is renamed
  int descriptor_ = -1;
};

/// Whether a file is called as one under construction is.
bool is_temporary(const std::string& path);

/// Removes what processes that were killed left under construction in a folder; no other may be at work in it.
void remove_temporaries(const std::string& folder);

/// AtomicFile for content that is in memory already.
void write_file_atomically(const std::string& path, std::string_view bytes, unsigned mode = 0666);

/// Appends to `path`, which is created if absent. Each record is with the operating system when append() returns, so
/// that a reader that follows the file, or a run that dies, never sees half of one. Records for which there is no room
/// wait in memory, in order, and are written by the first call that finds some.
class GrowingFile {
 public:
  explicit GrowingFile(std::string path);
  ~GrowingFile();
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;

  /// Throws std::runtime_error naming the file if it cannot grow; the record waits then.
  void append(std::string_view record);
  /// Tries again to write what waits; throws likewise.
  void flush();

 private:
  std::string path_;
  int descriptor_;
  std::string waiting_;
};

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

/// Creates `path`, or, if something is there, the first of PATH-2, PATH-3, … that is not, and returns what it made.
std::string create_directory_beside(const std::string& path);

/// A file, or a directory with anything in it, at `path` is a std::invalid_argument that names `option`.
void check_new_or_empty(const std::string& path, const std::string& option);

/// A directory under construction, of a temporary name beside `path`, until commit() renames it; where `path` is an
/// empty directory, in it, until commit() moves its files there. Without commit() the destructor removes it with all it
/// holds. The parents of `path` are made.
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
  bool is_there_;  // it may be where something is mounted, or where a shell is
  std::string temporary_;
};

}  // namespace prunex::io
