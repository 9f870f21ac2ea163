// Which slices of a group have a say in its scores.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "prunex/prune/importance.h"
#include "prunex/prune/weight_roles.h"

namespace prunex::prune {

/// Scores of the positions of a slice's axis; nothing: the slice has no say.
using LocalScores = std::function<std::optional<std::vector<double>>(const sparsity::Slice&, const WeightRole&)>;

/// Asks slices for local scores and makes unit scores of them: by unit, reduced, normalised.
class Entries {
 public:
  Entries(const ImportanceOptions& options, const program::Graph& graph);

  UnitScores score(const sparsity::Group& group, const LocalScores& local) const;

  /// Whether such weights have a say, as far as the options go.
  bool counts(const WeightRole& role) const;
  const WeightRole& role(const std::string& tensor) const;
  const ImportanceOptions& options() const { return options_; }

 private:
  bool counts(WeightKind kind) const;
  const sparsity::Slice* maker(const sparsity::Group& group) const;
  double positions_per_unit(const sparsity::Group& group) const;

  ImportanceOptions options_;
  std::map<std::string, WeightRole> roles_;
};

}  // namespace prunex::prune
