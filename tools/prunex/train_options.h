// The options of prunex train.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "prunex/comm/connect.h"
#include "prunex/train/options.h"

namespace prunex::tools {

/// Everything the command line sets.
struct TrainCommand {
  train::TrainOptions options;
  comm::ConnectOptions gloo;
  std::string ranks_per_node = "1";
  std::string keep = "0.5";
  bool no_shared_memory = false;
  std::string interface;
  std::string freeze_after = "auto";
  std::string prune_end = "auto";
  std::string round_to = "auto";
  bool no_shrink = false;
  bool no_error_feedback = false;
  std::string outer_from = "auto", outer_momentum = "auto";
  std::string checkpoint_every = "auto";
  std::string sparse_reg = "auto", sparse_lr = "auto", finetune_lr = "auto";
  std::string ignore, layer_ratios;
  std::string preset;
  bool check = false;
  double join_timeout = 300;
  double comm_timeout = 600;
  double heartbeat_timeout = 1.5;
  std::string device = "cpu";
};

void add_train_options(CLI::App& app, TrainCommand& command);

/// Puts what was given as words ("auto", lists) into `command.options`. Throws std::invalid_argument that names the
/// option.
void take_words(TrainCommand& command);

}  // namespace prunex::tools
