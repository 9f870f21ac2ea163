#include "prunex/io/atomic_directory.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>

namespace prunex::io {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw std::runtime_error(fmt::format("cannot create directory {}: {}", path, why));
}

/// "a/b/" is "a/b".
fs::path without_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

}  // namespace

void check_new_or_empty(const std::string& path, const std::string& option) {
  const char* what = nullptr;
  if (fs::exists(path) && !fs::is_directory(path)) what = "a file";
  if (fs::is_directory(path) && !fs::is_empty(path)) what = "not empty";
  if (what == nullptr) return;
  throw std::invalid_argument(fmt::format("{} {}: is {}, a new or empty directory is wanted", option, path, what));
}

AtomicDirectory::AtomicDirectory(std::string path) : final_(without_slash(path).string()) {
  const fs::path parent = fs::absolute(final_).parent_path();
  std::error_code error;
  fs::create_directories(parent, error);
  if (error) fail(final_, error.message());
  temporary_ = (parent / fmt::format(".{}-XXXXXX", fs::path(final_).filename().string())).string();
  if (::mkdtemp(temporary_.data()) == nullptr) fail(final_, std::strerror(errno));
  fs::permissions(temporary_, fs::status(parent).permissions() & fs::perms(0755), error);
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
  fs::rename(temporary_, final_, error);
  if (error) fail(final_, error.message());
  temporary_.clear();
}

}  // namespace prunex::io
