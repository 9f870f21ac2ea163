// Input shapes on the command line: 1x3x224x224.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace prunex::tools {

/// Numbers of one or more joined by 'x'; throws std::invalid_argument that names the option.
std::vector<int64_t> parse_shape(const std::string& option, const std::string& text);

}  // namespace prunex::tools
