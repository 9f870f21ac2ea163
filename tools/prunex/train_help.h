// What prunex train says of itself before it starts.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "prunex/train/check.h"

namespace prunex::tools {

/// Which options --help shows first, and examples.
void explain_train(CLI::App& command);

/// What --check prints: the network, the data, the length of the run, what is pruned when, and what is sent.
std::string plan_text(const train::Plan& plan, const train::TrainOptions& options);

}  // namespace prunex::tools
