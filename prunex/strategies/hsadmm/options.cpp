#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <unordered_set>

#include "prunex/strategies/hsadmm/hsadmm.h"
#include "prunex/strategies/start.h"

namespace prunex::strategies {
namespace {

void refuse_unless(bool good, const char* option, double got, const char* wanted) {
  if (!good) throw std::invalid_argument(fmt::format("{}: got {}, wanted {}", option, got, wanted));
}

}  // namespace

void check(const HsadmmOptions& options, const TensorDict& params) {
  admm::check(options.consensus.penalty);
  const auto& [rate, momentum, from] = options.outer;
  const double lambda = options.consensus.lambda, local = options.local.momentum;
  refuse_unless(std::isfinite(rate) && rate > 0, "`outer_lr`", rate, "a number above 0");
  refuse_unless(momentum >= 0 && momentum < 1, "`outer_momentum`", momentum, "a number in [0, 1)");
  refuse_unless(from >= 0, "`outer_from`", static_cast<double>(from), "0 or more");
  refuse_unless(local >= 0 && local < 1, "the local optimizer's momentum", local, "a number in [0, 1)");
  refuse_unless(std::isfinite(lambda) && lambda >= 0, "`lambda`", lambda, "0 or more");
  refuse_unless(options.consensus.tolerance >= 0, "`tolerance`", options.consensus.tolerance, "0 or more");
  if (options.local.steps < 1 || options.local.total_steps < 1) {
    throw std::invalid_argument(fmt::format("`local_steps`: got {} of {} steps, wanted 1 or more", options.local.steps,
                                            options.local.total_steps));
  }
  if (options.consensus.penalty.kappa == 0 && options.consensus.start_from == StartFrom::kTheta) {
    throw std::invalid_argument("`start_from` theta: needs `kappa` above 0, or ranks never hear of each other");
  }
  if (options.consensus.penalty.kappa > 0 && options.consensus.penalty.rule == admm::PenaltyRule::kKappa &&
      !options.local.learning_rate) {
    throw std::invalid_argument("learning_rate: got none, wanted a function of the step: the kappa rule needs it");
  }
  if (options.overlap < 0 || options.overlap >= options.local.steps) {
    throw std::invalid_argument(fmt::format("`overlap`: got {}, wanted 0 … {}, fewer than `local_steps`",
                                            options.overlap, options.local.steps - 1));
  }
  if (options.consensus.flat && options.exchange.payload != Payload::kFp32) {
    throw std::invalid_argument(
        fmt::format("`payload`: got {}, the flat form knows no nodes to round between: wanted fp32",
                    name_of(options.exchange.payload)));
  }
  expect_usable(params, options.exchange.payload);
  sparsity::check_groups(options.masks.groups, params);
}

HsadmmOptions settled(HsadmmOptions options) {
  const bool settles = !options.masks.groups.empty() || options.consensus.penalty.kappa > 0;
  if (settles || options.masks.freeze_after != kNever) return options;
  options.masks.freeze_after = 0;
  if (options.outer.from == 0 && options.after_freeze == AfterFreeze::kNesterov) options.outer.from = 1;
  return options;
}

int64_t HsadmmOptions::lands_at(int64_t step) const {
  return std::max(step, std::min(step + overlap, local.total_steps - 1));
}

std::vector<std::string> names_in_consensus(const HsadmmOptions& options, const TensorDict& params) {
  std::unordered_set<std::string> grouped;
  for (const auto& group : options.masks.groups) {
    for (const auto& slice : group.slices) grouped.insert(slice.tensor);
  }
  std::vector<std::string> names;
  for (const auto& name : params.keys()) {
    if (options.consensus.aux == AuxTensors::kAdmm || grouped.contains(name)) names.push_back(name);
  }
  return names;
}

}  // namespace prunex::strategies
