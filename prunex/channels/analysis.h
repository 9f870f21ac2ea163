// What is known of the channels of a program: which must be removed together, which can be, and what weights are.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "prunex/channels/axes.h"
#include "prunex/channels/roles.h"
#include "prunex/program/program.h"
#include "prunex/sparsity/cut.h"
#include "prunex/sparsity/group.h"

namespace prunex::channels {

enum class GroupKind {
  kInner,   ///< one layer makes these channels, or several whose outputs are factors: a gate and what it scales
  kStream,  ///< several layers make them, whose outputs meet otherwise: a residual stream
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
  std::string reason;        ///< why not prunable
  std::string inexact;       ///< which statistics change with its units; empty: none
  std::string unmaskable{};  ///< why zeros in its parameters would not do what a cut does; empty: they would
  bool summed = false;       ///< something other than a weight adds up over its units: a sum, queries with keys
  std::vector<sparsity::Slice> slices;  ///< parameters and buffers, by name
};

/// Union-find over the channel units of the program's values, with one rule per ATen operation (operations.h). Made
/// once per graph and handed on: copies share it. Cost: nearly linear in the number of channels.
class Analysis {
 public:
  /// Implicit: functions that want an analysis take a program or a graph, of which they make one.
  Analysis(const program::Program& program, GroupOptions options = {});
  Analysis(const Graph& graph, GroupOptions options = {});

  const Graph& graph() const;
  const GroupOptions& options() const;
  const Axes& axes() const;

  /// Exact: removing one unit of a prunable group from all its slices leaves every other unit's arithmetic as it was,
  /// unless the options allow otherwise, which `inexact` then says. An operation without a rule freezes what it touches
  /// and is named in `reason`. In natural order of their names, the input's first and the output's last; names and
  /// slices do not depend on the order of the nodes.
  const std::vector<DependencyGroup>& groups() const;
  /// The prunable ones, for sparsity::make_cut: parameters and buffers.
  const std::vector<sparsity::Group>& removable() const;
  /// Position in removable() of the group that a unit belongs to; -1: none.
  int32_t removable_of(Unit unit) const;

  const WeightRoles& roles() const;
  /// Nothing: the tensor is no parameter.
  const WeightRole* role(const std::string& tensor) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

/// The graph with the recorded shapes that are left and every number in it that is a width rewritten: groups of
/// convolutions, sizes of views, ranges of slices and splits. The cut must remove whole units of dependency groups that
/// are prunable by `analysis`, everywhere they lie; any other throws c10::Error that says where and why. Takes
/// milliseconds.
Graph cut_graph(const Analysis& analysis, const sparsity::Cut& cut);

/// The program of cut_graph(), checked by check_shapes(). Run it with weights after sparsity::apply_cut().
program::Program cut_program(const Analysis& analysis, const sparsity::Cut& cut);

}  // namespace prunex::channels
