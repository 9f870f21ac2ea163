// What --version says.
#pragma once

#include <string>

namespace prunex::tools {

/// "prunex 0.1.0 (commit b3dd7c2a01), LibTorch 2.11.0"
std::string version_line();

}  // namespace prunex::tools
