#include "tools/prunex/version.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <chrono>
#include <filesystem>

#include "prunex/version.h"

namespace prunex::tools {

Build this_build() {
  return {commit(), TORCH_VERSION};
}

std::string time_now() {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(now));
}

report::Origin origin_of(const std::string& command, const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path().string();
  const Build build = this_build();
  return {.command = command,
          .folder = folder.empty() ? "." : folder,
          .date = time_now(),
          .version = fmt::format("{} ({}{})", kVersion, build.commit,
                                 build.commit.ends_with("-dirty") ? ", with changes that are not committed" : "")};
}

std::string version_line() {
  return fmt::format("prunex {} (commit {}), LibTorch {}", kVersion, commit(), TORCH_VERSION);
}

}  // namespace prunex::tools
