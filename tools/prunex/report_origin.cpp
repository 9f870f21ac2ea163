#include "tools/prunex/report_origin.h"

#include <fmt/chrono.h>

#include <chrono>
#include <filesystem>

#include "prunex/version.h"
#include "tools/prunex/commit.h"

namespace prunex::tools {

report::Origin origin_of(const std::string& command, const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path().string();
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return {.command = command,
          .folder = folder.empty() ? "." : folder,
          .date = fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(now)),
          .version = fmt::format("{} ({})", kVersion, commit())};
}

}  // namespace prunex::tools
