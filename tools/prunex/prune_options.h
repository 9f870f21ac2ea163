// What prunex prune is asked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "prunex/prune/pruner.h"
#include "prunex/train/options.h"
#include "tools/prunex/commands.h"

namespace prunex::tools {

struct PruneCommand {
  ModelChoice model;
  std::string weights;
  std::optional<double> ratio, macs, parameters, speed_up, latency;
  int64_t latency_batch = 1;
  std::string importance = "l2";
  std::optional<prune::Reduction> reduction;
  std::string normalizer;
  bool global = false, isomorphic = false, tp_compat = false, estimate_statistics = false;
  int64_t steps = 1;
  prune::LimitOptions limits;
  channels::GroupOptions groups;
  std::vector<std::string> layer_ratios;
  data::DataOptions data;
  int64_t importance_samples = 256;
  int threads = 1;
  std::string device = "cpu";
  bool quiet = false;
  std::string output;
};

text::OptionList describe(PruneCommand& command);

/// The one target that was given; none or several are a std::invalid_argument.
std::pair<std::string, double> target_option(const PruneCommand& command);
/// "`macs` 0.5", for messages.
std::string named_target(const PruneCommand& command);
prune::Target target_of(const PruneCommand& command, const prune::Pruner& pruner);

/// std::invalid_argument if two of its options contradict each other.
prune::PlanOptions plan_options(const PruneCommand& command);
prune::ImportanceOptions importance_options(const PruneCommand& command);

}  // namespace prunex::tools
