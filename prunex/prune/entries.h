// What the criteria are made of: sums over a weight, which slices of a group have a say, scores of units.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "prunex/channels/roles.h"
#include "prunex/prune/importance.h"

namespace prunex::prune {

using channels::WeightKind;
using channels::WeightRole;

/// Magnitude, batch-norm scale, Taylor, Hessian and OBDC: criteria that add up a number per entry of the weights.
/// Arguments as in make_importance().
std::unique_ptr<Importance> make_elementwise(const ImportanceOptions& options, const program::Graph& graph,
                                             TensorDict evidence);

/// Sums positions of a slice by unit.
UnitScores by_unit(const sparsity::Slice& slice, int64_t size, const std::vector<double>& positions);

/// Entries of equal length, at least one; `first` is the position of the maker's entry.
UnitScores reduce(const std::vector<UnitScores>& entries, Reduction reduction, size_t first);

/// Scores of the positions of a slice's axis, of a group of so many units; nothing: the slice has no say.
using LocalScores =
    std::function<std::optional<std::vector<double>>(const sparsity::Slice&, const WeightRole&, int64_t size)>;

/// Asks slices for local scores and makes unit scores of them: by unit, reduced, normalised.
class Entries {
 public:
  Entries(const ImportanceOptions& options, const program::Graph& graph);

  std::vector<UnitScores> score(const std::vector<sparsity::Group>& groups, const LocalScores& local) const;

  /// Whether such weights have a say, as far as the options go.
  bool counts(const WeightRole& role) const;
  const WeightRole& role(const std::string& tensor) const;
  const ImportanceOptions& options() const { return options_; }

 private:
  UnitScores score(const sparsity::Group& group, const LocalScores& local) const;
  bool counts(WeightKind kind) const;
  const sparsity::Slice* maker(const sparsity::Group& group) const;
  double positions_per_unit(const sparsity::Group& group) const;

  ImportanceOptions options_;
  channels::WeightRoles roles_;
};

}  // namespace prunex::prune
