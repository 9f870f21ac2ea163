// A training run, as one of its ranks sees it.
#pragma once

#include <string>

#include "prunex/comm/hierarchy.h"
#include "prunex/train/options.h"
#include "prunex/train/run/metrics.h"
#include "prunex/train/run/safekeeping.h"
#include "prunex/train/steps/device_graph.h"

namespace prunex::train {

/// Trains, evaluates and leaves the run directory; collective over all ranks, with equal options. Rank 0 creates the
/// directory, writes metrics.jsonl, summary.json and the model, and `config` as config.toml; the others write nothing.
/// The same seed and layout give the same metrics but for the seconds. Throws std::invalid_argument for options that do
/// not fit the data or the model, std::runtime_error for failures, Interrupted if it was asked to stop. `make_graph`
/// makes what local steps on a device are recorded in.
Summary train(const TrainOptions& options, comm::Hierarchy& ranks, const std::string& config,
              StopRequest* stop = nullptr, const GraphMaker& make_graph = make_device_graph);

}  // namespace prunex::train
