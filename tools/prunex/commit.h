// What exactly was built.
#pragma once

namespace prunex::tools {

/// The commit, with "-dirty" where files were changed since; "unknown" outside of a clone.
const char* commit();

}  // namespace prunex::tools
