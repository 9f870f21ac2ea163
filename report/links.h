// Where a page points to.
#pragma once

#include <string>

namespace prunex::report {

/// From a page in `folder` to a directory: relative, in the characters that a URL may hold, so that nothing in a path
/// is taken for a scheme. Empty if the directory is not there.
std::string link_to(const std::string& directory, const std::string& folder);

}  // namespace prunex::report
