// The options of prunex prune.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "prunex/data/load.h"
#include "prunex/prune/pruner.h"
#include "tools/prunex/model_options.h"

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
  bool quiet = false;
  std::string output;
};

text::OptionList describe(PruneCommand& command);

/// The one target that was given: its option and value; none or several are a std::invalid_argument.
std::pair<std::string, double> target_option(const PruneCommand& command);

/// std::invalid_argument for values out of range. Not of --latency, which is met by trying.
prune::Target target_of(const PruneCommand& command, const prune::Pruner& pruner);
prune::PlanOptions plan_options(const PruneCommand& command);
prune::ImportanceOptions importance_options(const PruneCommand& command);

}  // namespace prunex::tools
