#include "prunex/io/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <system_error>

namespace prunex::io {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_to_create(const std::string& path, const std::string& why) {
  throw std::runtime_error(fmt::format("cannot create directory {}: {}", path, why));
}

/// "a/b/" is "a/b".
fs::path without_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

/// What a shell leaves as it is.
std::string stem(const std::string& name) {
  fs::path path = without_slash(name);
  if (path == "." || path == "..") path = fs::weakly_canonical(path);
  std::string stem = path.stem().string();
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-";
  for (size_t i = stem.find_first_not_of(kPlain); i != std::string::npos; i = stem.find_first_not_of(kPlain, i)) {
    stem[i] = '_';
  }
  return stem;
}

// What a process that was killed at its very start left does not count.
bool holds_nothing(const fs::path& path) {
  return std::all_of(fs::directory_iterator(path), fs::directory_iterator(),
                     [](const fs::directory_entry& entry) { return is_temporary(entry.path().string()); });
}

// True if this call made it, false if it was there.
bool make_directory(const fs::path& path) {
  std::error_code error;
  bool created = fs::create_directories(path, error);
  if (error) fail_to_create(path, error.message());
  return created;
}

}  // namespace

// Some file systems have no locks: then there is none.
DirectoryLock::DirectoryLock(const std::string& path, const std::string& who)
    : descriptor_(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (descriptor_ < 0) {
    throw std::runtime_error(fmt::format("cannot open {}: {}", path, std::generic_category().message(errno)));
  }
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(descriptor_);
  throw std::runtime_error(fmt::format("{}: another {} is at work in it", path, who));
}

DirectoryLock::~DirectoryLock() {
  ::close(descriptor_);
}

void create_run_directory(const std::string& path) {
  if (fs::is_directory(path) && holds_nothing(path)) return;
  check_new_or_empty(path, "`run_dir`");
  make_directory(path);
}

std::string create_next_run_directory(const std::string& root, const RunName& name) {
  std::string prefix = fmt::format("{}-{}-{}", stem(name.dataset), stem(name.model), name.strategy);
  make_directory(root);
  for (int64_t n = 1;; ++n) {
    fs::path path = fs::path(root) / fmt::format("{}-{}", prefix, n);
    if (!fs::exists(path) && make_directory(path)) return path.string();
  }
}

std::string create_directory_beside(const std::string& path) {
  const std::string first = without_slash(path).string();
  for (int64_t n = 1;; ++n) {
    const std::string next = n == 1 ? first : fmt::format("{}-{}", first, n);
    if (!fs::exists(fs::symlink_status(next)) && make_directory(next)) return next;
  }
}

void check_new_or_empty(const std::string& path, const std::string& option) {
  const char* what = nullptr;
  if (fs::exists(path) && !fs::is_directory(path)) what = "a file";
  if (fs::is_directory(path) && !fs::is_empty(path)) what = "not empty";
  if (what == nullptr) return;
  throw std::invalid_argument(fmt::format("{} {}: is {}, a new or empty directory is wanted", option, path, what));
}

AtomicDirectory::AtomicDirectory(std::string path)
    : final_(without_slash(path).string()), is_there_(fs::is_directory(final_)) {
  const fs::path parent = is_there_ ? fs::absolute(final_) : fs::absolute(final_).parent_path();
  make_directory(parent);
  temporary_ = (parent / fmt::format(".{}-XXXXXX", fs::absolute(final_).filename().string())).string();
  if (::mkdtemp(temporary_.data()) == nullptr) fail_to_create(final_, std::strerror(errno));
  std::error_code ignored;
  fs::permissions(temporary_, fs::status(parent).permissions() & fs::perms(0755), ignored);
}

AtomicDirectory::~AtomicDirectory() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

std::string AtomicDirectory::by_its_name(std::string message) const {
  for (size_t at = 0; (at = message.find(temporary_, at)) != std::string::npos; at += final_.size()) {
    message.replace(at, temporary_.size(), final_);
  }
  return message;
}

void AtomicDirectory::commit() {
  std::error_code error;
  if (!is_there_) {
    fs::rename(temporary_, final_, error);
    if (error) fail_to_create(final_, error.message());
    return temporary_.clear();
  }
  const auto others = std::distance(fs::directory_iterator(final_), fs::directory_iterator()) - 1;
  if (others > 0) fail_to_create(final_, std::strerror(ENOTEMPTY));
  for (const auto& entry : fs::directory_iterator(temporary_)) {
    fs::rename(entry.path(), fs::path(final_) / entry.path().filename(), error);
    if (error) fail_to_create(final_, error.message());
  }
}

}  // namespace prunex::io
