// The oracles' tiny problems: settings, data and one rank's local phase, in float64.
#pragma once

#include <ATen/core/Tensor.h>

#include <nlohmann/json.hpp>
#include <string>

#include "prunex/strategies/hsadmm/hsadmm.h"
#include "prunex/tensors.h"

namespace prunex::oracle {

/// One rank's problem, as tests/data/oracles/README.md describes it.
class Problem {
 public:
  Problem(const nlohmann::json& oracle, int node, int local_rank);

  Replica initial_replica() const;
  /// The theta step of one outer iteration: exact for least squares, SGD steps for the networks.
  void local_phase(Replica& replica, const strategies::LocalTerms& terms) const;

 private:
  void solve_least_squares(Replica& replica, const strategies::LocalTerms& terms) const;
  void train_network(Replica& replica, const strategies::LocalTerms& terms) const;
  at::Tensor loss(const Weights& weights) const;

  const nlohmann::json& oracle_;
  at::Tensor x_, y_;
};

/// A tensor of the file: row-major entries in a list.
at::Tensor read_tensor(const nlohmann::json& entries, at::IntArrayRef shape);
std::vector<int64_t> shape_of(const nlohmann::json& oracle, const std::string& tensor);
strategies::HsadmmOptions options_of(const nlohmann::json& oracle);

}  // namespace prunex::oracle
