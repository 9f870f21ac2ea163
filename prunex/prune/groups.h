// Dependency groups: the channels of a program that must be removed together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "prunex/program/program.h"
#include "prunex/prune/group_options.h"
#include "prunex/sparsity/group.h"

namespace prunex::prune {

enum class GroupKind {
  kInner,   ///< one layer makes these channels
  kStream,  ///< several layers make them: a residual stream
  kInput,   ///< the model's input
  kOutput,  ///< the model's output
};

/// "inner", "stream", "input", "output".
const char* name_of(GroupKind kind);

struct DependencyGroup {
  std::string name;  ///< the first layer, in natural order, that makes the channels; "[P]" is added if they begin at P
  int64_t size = 0;  ///< units
  GroupKind kind = GroupKind::kInner;
  bool prunable = false;
  std::string reason;                   ///< why not prunable
  std::string inexact;                  ///< which statistics change with its units; empty: none
  std::vector<sparsity::Slice> slices;  ///< parameters and buffers, by name
};

/// Union-find over the channel units of the program's values, with one rule per ATen operation (operators.h). Exact:
/// removing one unit of a prunable group from all its slices leaves every other unit's arithmetic as it was, unless the
/// options allow otherwise, which `inexact` then says. An
/// operation without a rule freezes what it touches and is named in `reason`. Groups are in natural order of their
/// names, the input's first and the output's last; names and slices do not depend on the order of the nodes.
/// Cost: nearly linear in the number of channels.
std::vector<DependencyGroup> dependency_groups(const program::Graph& graph, GroupOptions options = {});

/// The prunable ones, for sparsity::make_cut: parameters and buffers.
std::vector<sparsity::Group> removable_groups(const std::vector<DependencyGroup>& groups);

}  // namespace prunex::prune
