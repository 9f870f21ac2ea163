// --checkpoint-every of prunex train.
#pragma once

#include <string>

#include "prunex/train/options.h"

namespace prunex::tools {

/// "auto", a number of exchanges, or a time such as 90s, 10min or 1h; else std::invalid_argument.
void set_checkpoints(train::TrainOptions& options, const std::string& word);

}  // namespace prunex::tools
