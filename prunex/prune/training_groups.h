// The groups that training sparsifies, chosen by words.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "prunex/channels/analysis.h"
#include "prunex/prune/plan.h"
#include "prunex/sparsity/group.h"

namespace prunex::prune {

/// `words`: "none", or kinds joined by '+', each with its own share of surviving units behind a colon
/// ("filter:0.8+channel:0.5"); `keep` is the share of those without.
///   coupled        every prunable dependency group: can be cut out of the model
///   coupled-inner  those that a single layer makes; residual streams stay dense
///   filter         rows of each convolution and hidden linear layer, with bias and batch norm
///   channel        input channels of each convolution
///   shape          columns of each convolution's GEMM view
/// The first convolution and the classifier stay dense for the last three. Only parameters are listed. Names are those
/// of the dependency groups, or "KIND:LAYER". Throws std::invalid_argument for words or shares it does not know.
/// The share of a coupled group is rounded so that its layers keep multiples of `round_to` channels (LimitOptions); 1
/// keeps it exact.
std::vector<sparsity::Group> training_groups(const channels::Analysis& analysis, const std::string& words, double keep,
                                             int64_t round_to = 1);

/// Coupled groups of those kinds that are left out: a cut could take them, but masks would not be that cut. By name,
/// with why.
std::vector<std::pair<std::string, std::string>> unmaskable_groups(const channels::Analysis& analysis,
                                                                   const std::string& words);

}  // namespace prunex::prune
