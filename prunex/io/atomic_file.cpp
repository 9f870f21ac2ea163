#include "prunex/io/files.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <random>
#include <regex>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "prunex/text/option.h"

namespace prunex::io {
namespace {

constexpr size_t kLargestWrite = size_t{1} << 30;  // Linux writes at most 2 GiB - 4 KiB per call

namespace fs = std::filesystem;

// A rename would put a file in its place.
bool is_stream(const std::string& path) {
  std::error_code ignored;
  const auto status = fs::status(path, ignored);
  return fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status);
}

/// The open descriptor that a path such as /dev/stdout or /dev/fd/3 stands for; nothing if it is another path.
std::optional<int64_t> descriptor_named(const std::string& path) {
  std::error_code ignored;
  const bool is_link_of_devices = fs::path(path).parent_path() == "/dev" && fs::is_symlink(path, ignored);
  const std::string name = is_link_of_devices ? fs::read_symlink(path, ignored).string() : path;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (name.starts_with(folder)) return text::number_in<int64_t>(name.substr(folder.size()));
  }
  return std::nullopt;
}

/// To write where it is: opened anew, a file that it leads to would be written from its beginning.
int share_of(int descriptor) {
  std::fflush(nullptr);
  return ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
}

/// The permissions of a file that is replaced stay what they are, as far as `mode` allows.
void keep_permissions(int descriptor, const std::string& target, unsigned mode) {
  struct stat there {};
  if (::stat(target.c_str(), &there) == 0) ::fchmod(descriptor, there.st_mode & mode);
}

// A link may lead to a file that is not there yet.
std::string follow_links(const std::string& path) {
  constexpr int kMost = 40;  // as the kernel
  std::error_code error;
  fs::path target = path;
  for (int i = 0; i < kMost && fs::is_symlink(target, error); ++i) {
    target = target.parent_path() / fs::read_symlink(target, error);
  }
  return target.string();
}

// Ranks in containers have the same process and thread ids and may share a folder: chance keeps them apart.
std::string temporary_name(const std::string& target) {
  return fmt::format("{}.{}-{:08x}.tmp", target, ::getpid(), std::random_device()());
}

// The rename itself must survive a power cut: it is an entry of the folder. Some file systems cannot sync folders.
void sync_folder_of(const std::string& path) {
  std::string folder = fs::path(path).parent_path().string();
  int descriptor = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

[[noreturn]] void fail_to_write(const std::string& path) {
  throw std::runtime_error(fmt::format("cannot write {}: {}", path, std::generic_category().message(errno)));
}

}  // namespace

AtomicFile::AtomicFile(std::string path, unsigned mode) : path_(std::move(path)) {
  if (const auto named = descriptor_named(path_)) {
    descriptor_ = share_of(static_cast<int>(*named));
  } else if (is_stream(path_)) {
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  } else {
    target_ = follow_links(path_);
    do {
      temporary_ = temporary_name(target_);
      descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    } while (descriptor_ < 0 && errno == EEXIST);
    if (descriptor_ >= 0) keep_permissions(descriptor_, target_, mode);
  }
  if (descriptor_ >= 0) return;
  temporary_.clear();
  fail_to_write(path_);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::append(const void* data, size_t bytes) {
  TORCH_CHECK(descriptor_ >= 0, "[io] append to ", path_, " after commit");
  const char* position = static_cast<const char*>(data);
  while (bytes > 0) {
    ssize_t written = ::write(descriptor_, position, std::min(bytes, kLargestWrite));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_to_write(path_);
    position += written;
    bytes -= static_cast<size_t>(written);
  }
}

void AtomicFile::commit() {
  TORCH_CHECK(descriptor_ >= 0, "[io] second commit of ", path_);
  if (!temporary_.empty() && ::fsync(descriptor_) != 0) fail_to_write(path_);
  if (::close(std::exchange(descriptor_, -1)) != 0) fail_to_write(path_);
  if (temporary_.empty()) return;
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) fail_to_write(path_);
  temporary_.clear();
  sync_folder_of(target_);
}

bool is_temporary(const std::string& path) {
  static const std::regex name(R"re(.+\.[0-9]+-[0-9a-f]{8}\.tmp)re");
  return std::regex_match(fs::path(path).filename().string(), name);
}

void remove_temporaries(const std::string& folder) {
  std::error_code ignored;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (is_temporary(entry.path().string())) found.push_back(entry.path());
  }
  for (const auto& path : found) fs::remove(path, ignored);
}

void write_file_atomically(const std::string& path, std::string_view bytes, unsigned mode) {
  AtomicFile file(path, mode);
  file.append(bytes);
  file.commit();
}

GrowingFile::GrowingFile(std::string path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail_to_write(path_);
}

GrowingFile::~GrowingFile() {
  ::close(descriptor_);
}

void GrowingFile::append(std::string_view record) {
  waiting_ += record;
  flush();
}

// One write call: records stay whole even if the process is killed between two of them.
void GrowingFile::flush() {
  const off_t end = ::lseek(descriptor_, 0, SEEK_END);
  ssize_t written = 0;
  do {
    written = ::write(descriptor_, waiting_.data(), waiting_.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(waiting_.size())) return waiting_.clear();
  // a regular file takes less than asked only when the disk is full
  const int error = written >= 0 ? ENOSPC : errno;
  if (written > 0 && ::ftruncate(descriptor_, end) != 0) waiting_.erase(0, static_cast<size_t>(written));
  errno = error;
  fail_to_write(path_);
}

}  // namespace prunex::io
