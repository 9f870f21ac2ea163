// What the processes of a run know and others do not.
#pragma once

#include <string>

#include "prunex/comm/environment.h"

namespace prunex::comm {

/// Who may join a run: whoever proves on every connection that it knows the secret, before anything else is read from
/// it. Without a secret that is whoever reaches its ports. docs/running.md, "Private links".
struct Privacy {
  std::string secret = {};
  bool encrypt = false;  ///< everything between processes but shared memory; with a secret alone
};

/// PRUNEX_SECRET: the secret itself, where no file holds it.
inline constexpr const char* kSecretVariable = "PRUNEX_SECRET";
inline constexpr size_t kLeastSecretBytes = 16, kMostSecretBytes = 1024;

/// The secret in a file, or, where none is named, of the variable, or none. A line break at its end is not part of it.
/// Throws std::invalid_argument for a file that others than its owner may read, that is none or cannot be read, and for
/// a secret that is too short or too long; never says a part of it.
std::string read_secret(const std::string& file, const Lookup& lookup);

/// The same, of this process's environment. Throws std::invalid_argument if there is nothing to encrypt with.
Privacy read_privacy(const std::string& file, bool encrypt);

}  // namespace prunex::comm
