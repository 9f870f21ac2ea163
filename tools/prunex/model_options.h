// The options that choose a network outside training: a file, or a built-in name with its input.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "prunex/program/pt2.h"

namespace prunex::tools {

struct ModelChoice {
  std::string model;
  int64_t max_model_size = 0;  ///< MiB; 0: eight times the file
  std::string input;           ///< 1x3x224x224; empty: what the network was made for
  int64_t classes = 0;         ///< 0: what the network was made for
  double width = 1;
  uint64_t seed = 0;
};

/// --model, --classes, --width, --max-model-size.
void add_model_options(CLI::App& app, ModelChoice& choice);

/// Reads the file or builds the network; std::invalid_argument names the option.
program::Model load_model(const ModelChoice& choice, program::Batch batch = program::Batch::kDynamic);

}  // namespace prunex::tools
