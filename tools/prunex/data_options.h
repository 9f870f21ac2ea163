// The options that choose the images; the same in every command.
#pragma once

#include <CLI/CLI.hpp>

#include "prunex/data/load.h"

namespace prunex::tools {

void add_data_options(CLI::App& app, data::DataOptions& data);

}  // namespace prunex::tools
