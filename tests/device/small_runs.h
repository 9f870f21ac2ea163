// Whole runs of a network of a few hundred weights, with all ranks in this process, on any kind of device.
#pragma once

#include <c10/core/DeviceType.h>

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "prunex/train/trainer.h"
#include "tests/scratch.h"

namespace prunex::tests {

/// A run by what it changes.
struct SmallRun {
  std::string name;
  std::function<void(train::TrainOptions&)> set;
};

inline void PrintTo(const SmallRun& run, std::ostream* out) {
  *out << run.name;
}

/// Every strategy with every payload, every form of exchange, rule and way to cut.
std::vector<SmallRun> small_runs();

/// 5 exchanges of 2 steps on 2 nodes of 2 ranks, with a checkpoint after the last. `folder` holds all files.
train::TrainOptions options_of(const SmallRun& run, const Scratch& folder, const std::string& directory);

/// Rank 0's. A GPU that several ranks share is served by way of the CPU.
train::Summary run_on(c10::DeviceType device, const train::TrainOptions& options,
                      const train::GraphMaker& make_graph = train::make_device_graph);

}  // namespace prunex::tests
