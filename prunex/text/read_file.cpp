#include "prunex/text/read_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <system_error>

namespace prunex::text {

std::string read_file(const std::string& path, size_t most_bytes) {
  namespace fs = std::filesystem;
  std::error_code error;
  const auto kind = fs::status(path, error).type();
  if (error) throw std::invalid_argument("cannot be read: " + error.message());
  if (kind == fs::file_type::directory) throw std::invalid_argument("is a directory, wanted a file");
  if (kind != fs::file_type::regular && !fs::is_symlink(fs::symlink_status(path, error))) {
    throw std::invalid_argument("is not a regular file");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::invalid_argument("cannot be read: " + std::generic_category().message(errno));
  std::string text;
  for (char piece[1 << 16]; text.size() <= most_bytes && (file.read(piece, sizeof piece), file.gcount() > 0);) {
    text.append(piece, static_cast<size_t>(file.gcount()));
  }
  if (file.bad()) throw std::invalid_argument("cannot be read to its end");
  if (text.size() > most_bytes) throw std::invalid_argument(fmt::format("got more than {} bytes", most_bytes));
  return text;
}

void expect_there(const std::string& option, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::status(path, ignored).type() != fs::file_type::not_found) return;
  const bool relative = fs::path(path).is_relative();
  throw std::invalid_argument(
      fmt::format("{}: {}: no such file{}", option, path, relative ? " in " + fs::current_path(ignored).string() : ""));
}

}  // namespace prunex::text
