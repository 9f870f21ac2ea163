#include "tools/prunex/version.h"

#include <fmt/format.h>
#include <torch/version.h>

#include "prunex/version.h"
#include "tools/prunex/commit.h"

namespace prunex::tools {

std::string version_line() {
  return fmt::format("prunex {} (commit {}), LibTorch {}", kVersion, commit(), TORCH_VERSION);
}

}  // namespace prunex::tools
