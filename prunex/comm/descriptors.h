// Open files: a rank of a large run has many connections.
#pragma once

#include "prunex/comm/layout.h"

namespace prunex::comm {

/// What a rank of this run has open at most, beside its files.
int descriptors_of_rank(const Layout& layout);

/// Raises the process's limit of open files, as far as that is permitted, until so many more can be opened. Throws
/// std::runtime_error if they cannot.
void reserve_descriptors(int more);

}  // namespace prunex::comm
