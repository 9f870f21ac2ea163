#include "prunex/admm/residuals.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace prunex::admm {
namespace {

double capped(double rho, double cap) {
  return cap > 0 ? std::min(rho, cap) : rho;
}

Penalties capped(const Penalties& rho, const PenaltyOptions& options) {
  return {capped(rho.rho1, options.rho1_max), capped(rho.rho2, options.rho2_max)};
}

/// The prox's pull per iteration is kappa whatever the step sizes; a tiny last step may not make rho explode.
Penalties kappa_rule(const PenaltyOptions& options, const StepSizes& steps, const NodesAndRanks& cluster) {
  const double stable = options.rho1_max > 0 ? options.rho1_max : 0.05 / steps.largest;
  const double wanted = steps.sum > 0 ? options.kappa * (1 - steps.momentum) / steps.sum : stable;
  const double rho1 = std::min(wanted, stable);
  return capped({rho1, options.rho2_ratio * cluster.ranks_per_node * rho1}, options);
}

double balanced(double rho, double primal, double dual, const PenaltyOptions& options) {
  if (primal > options.mu * dual) return rho * options.tau;
  if (dual > options.mu * primal) return rho / options.tau;
  return rho;
}

void at_least(const char* option, double got, double least) {
  if (std::isfinite(got) && got >= least) return;
  throw std::invalid_argument(fmt::format("{}: got {}, wanted a number of {} or more", option, got, least));
}

void positive(const char* option, double got) {
  if (std::isfinite(got) && got > 0) return;
  throw std::invalid_argument(fmt::format("{}: got {}, wanted a number above 0", option, got));
}

}  // namespace

void check(const PenaltyOptions& options) {
  at_least("`kappa`", options.kappa, 0);
  positive("`rho1`", options.rho1);
  at_least("`rho2`", options.rho2, 0);
  at_least("`rho2_ratio`", options.rho2_ratio, 0);
  at_least("`rho1_max`", options.rho1_max, 0);
  at_least("`rho2_max`", options.rho2_max, 0);
  at_least("`tau`", options.tau, 1);
  at_least("`mu`", options.mu, 1);
  positive("`growth`", options.growth);
}

Penalties first_penalties(const PenaltyOptions& options, const StepSizes& steps, const NodesAndRanks& cluster) {
  if (options.rule == PenaltyRule::kKappa) return kappa_rule(options, steps, cluster);
  return capped({options.rho1, options.rho2}, options);
}

Penalties next_penalties(const PenaltyOptions& options, const Penalties& now, const Residuals& residuals,
                         const StepSizes& next_steps, const NodesAndRanks& cluster) {
  switch (options.rule) {
    case PenaltyRule::kKappa:
      return kappa_rule(options, next_steps, cluster);
    case PenaltyRule::kResidual:
      return capped({balanced(now.rho1, residuals.r_intra, residuals.s_intra, options),
                     cluster.nodes == 1 ? now.rho2 : balanced(now.rho2, residuals.r_inter, residuals.s_inter, options)},
                    options);
    case PenaltyRule::kGeometric:
      return capped({now.rho1 * options.growth, now.rho2 * options.growth}, options);
    case PenaltyRule::kFixed:
      return now;
  }
  return now;
}

}  // namespace prunex::admm
