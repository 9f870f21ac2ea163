// What of a run will be other than one would expect: said at its start.
#pragma once

#include <string>
#include <vector>

#include "prunex/channels/analysis.h"
#include "prunex/comm/hierarchy.h"
#include "prunex/program/program.h"

namespace prunex::train {

/// Of batch norm that stays as the file has it, a head that is no parameter, and parameters that get no gradient; one
/// sentence each. Runs the program on two images of noise. std::invalid_argument names `source` if nothing can train.
std::vector<std::string> training_remarks(const program::Model& model, const std::string& source);

/// `heads` would do nothing: std::invalid_argument that names `source` if no attention loses other units with it.
void expect_heads(const channels::Analysis& analysis, const std::string& source);

/// The same for `statistics`, of units over which a norm, mean or maximum is taken.
void expect_statistics(const channels::Analysis& analysis, const std::string& source);

/// Why no channel of the network can be cut; empty if one can.
std::string nothing_to_cut(const channels::Analysis& analysis, const std::string& source);

/// Which of the groups that `words` name masks leave out though a cut could take them, and why the first; empty if
/// none.
std::string mask_remark(const channels::Analysis& analysis, const std::string& words, const std::string& source);

/// The same results by a slower way.
std::vector<std::string> transport_remarks(const comm::Hierarchy& ranks);

/// "a", "a and b", "a, b, c and 4 others".
std::string some_of(const std::vector<std::string>& names);

}  // namespace prunex::train
