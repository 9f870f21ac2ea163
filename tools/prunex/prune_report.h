// report.json of prunex prune: what was asked, what was done, and why not.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "prunex/prune/pruner.h"
#include "prunex/train/evaluate.h"

namespace prunex::tools {

/// What a data set says of the models; nothing where none was given.
struct Evaluations {
  train::Evaluation before, after;
  std::optional<train::Evaluation> after_statistics;       ///< estimated anew, of networks that have some
  double milliseconds_before = 0, milliseconds_after = 0;  ///< per batch of the test set
};

/// Of a batch of `images`, whole and pruned.
struct Latency {
  int64_t images = 1;
  double milliseconds_before = 0, milliseconds_after = 0;
};

/// How the plan was made, for the record.
struct PruneSettings {
  std::string model, importance, scope, target;
  std::string device;  ///< that times were measured on
  double value = 0;    ///< of the target's option
  int64_t steps = 1;
  bool tp_compat = false;
  std::optional<Latency> latency;  ///< where it was the target
};

nlohmann::ordered_json report_json(const PruneSettings& settings, const prune::Pruned& pruned,
                                   const std::optional<Evaluations>& found);

/// The same for people, on standard output.
void print_report(const prune::Pruned& pruned, const std::optional<Evaluations>& found);

}  // namespace prunex::tools
