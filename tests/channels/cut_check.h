// The property that every pruned network must have: cutting equals masking.
#pragma once

#include "prunex/channels/analysis.h"
#include "prunex/program/builder.h"
#include "prunex/program/program.h"
#include "prunex/sparsity/cut.h"

namespace prunex::channels {

/// A classifier of three over the features, pooled to one pixel.
program::Model classify(program::Builder& net, program::ValueId features);

/// How many units of every prunable group survive, chosen at random.
enum class Keep { kHalf, kOne };

struct CutCheck {
  double error = 0;   ///< largest difference of the outputs, relative to the largest output
  double effect = 0;  ///< the same between the masked network and the one without masks
  sparsity::Cut cut;
  program::Model small;
};

/// Compares the network without the removed units with the whole network whose columns of these units are zero (eval
/// mode, random batch-norm statistics), in the images' precision.
CutCheck check_cut(const program::Model& model, Keep keep, const at::Tensor& images);

/// The larger error of both ways to keep.
double cut_error(const program::Model& model, const at::Tensor& images);

}  // namespace prunex::channels
