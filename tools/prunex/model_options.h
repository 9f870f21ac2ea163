// The options that choose a network outside training: a file, or a built-in name with its input.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "prunex/models/models.h"
#include "prunex/program/pt2.h"
#include "prunex/text/option.h"

namespace prunex::tools {

struct ModelChoice {
  std::string model;
  int64_t max_model_size = 0;  ///< MiB; 0: eight times the file
  std::string input;           ///< 1x3x224x224; empty: what the network was made for
  int64_t classes = 0;         ///< 0: what the network was made for
  double width = 1;
  models::Norm norm = models::Norm::kBatch;
  uint64_t seed = 0;
};

/// model, max-model-size, classes, width, norm.
void describe_model(text::OptionList& list, ModelChoice& choice);
/// input: a shape.
void describe_input(text::OptionList& list, ModelChoice& choice);
/// max-model-size, of program::read_pt2().
void describe_model_limit(text::OptionList& list, int64_t& mebibytes, std::vector<text::Condition> conditions = {});

/// Reads the file or builds the network; std::invalid_argument names the option.
program::Model load_model(const ModelChoice& choice, program::Batch batch = program::Batch::kDynamic);

}  // namespace prunex::tools
