#include "prunex/io/json_lines.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace prunex::io {
namespace {

[[noreturn]] void fail(const std::string& path) {
  throw std::runtime_error(fmt::format("cannot write {}: {}", path, std::generic_category().message(errno)));
}

}  // namespace

JsonLines::JsonLines(std::string path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail(path_);
}

JsonLines::~JsonLines() {
  ::close(descriptor_);
}

void JsonLines::append(std::string_view object) {
  TORCH_CHECK(object.find('\n') == std::string_view::npos, "[io] a line of ", path_, " contains a line break");
  waiting_ += fmt::format("{}\n", object);
  flush();
}

// One write call: lines stay whole even if the process is killed between two of them.
void JsonLines::flush() {
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
  fail(path_);
}

}  // namespace prunex::io
