// Sums over the rows and the channels of a tensor, in one pass over its memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace prunex::prune {

/// What an entry w adds; x is the entry of another tensor at its place.
enum class Term {
  kAbsolute,         ///< |w|
  kSquare,           ///< w^2
  kPower,            ///< |w|^power
  kProduct,          ///< w x
  kAbsoluteProduct,  ///< |w x|
  kCurvature,        ///< w^2 x
};

struct AxisSums {
  std::vector<double> rows;      ///< by position of axis 0
  std::vector<double> channels;  ///< by position of axis 1; empty for vectors
};

/// `other` is undefined for terms without x, else of the same shape. Single precision in short runs, summed in double.
AxisSums axis_sums(const at::Tensor& weight, const at::Tensor& other, Term term, double power);

}  // namespace prunex::prune
