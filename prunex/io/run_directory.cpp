#include "prunex/io/run_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <stdexcept>
#include <system_error>

#include "prunex/io/atomic_file.h"

namespace prunex::io {
namespace {

namespace fs = std::filesystem;

std::string stem(const std::string& name) {
  return fs::path(name).stem().string();
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
  if (error) throw std::runtime_error(fmt::format("cannot create directory {}: {}", path.string(), error.message()));
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
  if (fs::exists(path) && !fs::is_directory(path)) {
    throw std::invalid_argument(fmt::format("`run_dir` {}: is a file, a new or empty directory is wanted", path));
  }
  if (!make_directory(path) && !holds_nothing(path)) {
    throw std::invalid_argument(fmt::format("`run_dir` {}: is not empty, a new or empty directory is wanted", path));
  }
}

std::string create_next_run_directory(const std::string& root, const RunName& name) {
  std::string prefix = fmt::format("{}-{}-{}", stem(name.dataset), stem(name.model), name.strategy);
  make_directory(root);
  for (int64_t n = 1;; ++n) {
    fs::path path = fs::path(root) / fmt::format("{}-{}", prefix, n);
    if (!fs::exists(path) && make_directory(path)) return path.string();
  }
}

}  // namespace prunex::io
