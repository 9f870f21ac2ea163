// What a report says of itself.
#pragma once

#include <string>

#include "report/report.h"

namespace prunex::tools {

/// Of a page at `path`, made by `command` now.
report::Origin origin_of(const std::string& command, const std::string& path);

}  // namespace prunex::tools
