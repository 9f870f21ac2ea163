// What was built, and what is made with it.
#pragma once

#include <string>

#include "report/report.h"

namespace prunex::tools {

/// What exactly was built.
struct Build {
  std::string commit;  ///< with "-dirty" where files were changed since; "unknown" outside of a clone
  std::string torch;

  bool is_committed() const { return commit != "unknown" && !commit.ends_with("-dirty"); }
};
Build this_build();

/// What a report at `path`, made by `command` now, says of itself.
report::Origin origin_of(const std::string& command, const std::string& path);

/// "prunex 0.1.0 (commit b3dd7c2a01), LibTorch 2.11.0"
std::string version_line();

/// The commit, with "-dirty" where files were changed since; "unknown" outside of a clone.
const char* commit();

}  // namespace prunex::tools
