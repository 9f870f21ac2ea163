#include "report/links.h"

#include <fmt/format.h>

#include <cctype>
#include <filesystem>
#include <system_error>

namespace prunex::report {
namespace {

namespace fs = std::filesystem;

std::string percent_encoded(const std::string& path) {
  std::string url;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (byte < 0x80 && std::isalnum(byte) != 0) || std::string("-._~/").find(c) != std::string::npos;
    url += plain ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return url;
}

}  // namespace

std::string link_to(const std::string& directory, const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) return "";
  const auto relative = fs::relative(directory, folder.empty() ? "." : folder, error);
  return error || relative.empty() ? "" : percent_encoded(relative.string() + "/");
}

}  // namespace prunex::report
