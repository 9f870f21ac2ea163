// From the scores of single positions to the scores of a group's units.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "prunex/sparsity/group.h"

namespace prunex::prune {

/// How the entries of a group, one per slice that has a say, become one score.
enum class Reduction {
  kMean,
  kSum,
  kMax,
  kProduct,
  kFirst,  ///< the entry of the layer that makes the units
  kLast,   ///< the last entry in the order of the slices
};

/// What the scores of one group are divided by, so that groups can be compared.
enum class Normalizer {
  kNone,
  kMean,
  kSum,
  kMax,
  kRange,     ///< (x - min) / (max - min + 1e-8)
  kGaussian,  ///< (x - mean) / (standard deviation + 1e-8)
  kMedian,    ///< x / (the score at position floor(size / 2) in ascending order + 1e-8)
  kLamp,      ///< x / the sum of all scores that are not smaller (Lee et al. 2021)
};

/// "none", "mean", "sum", "max", "range", "gaussian", "median", "lamp"; else std::invalid_argument that lists them.
Normalizer normalizer_named(const std::string& name);
std::vector<std::string> normalizer_names();

/// double per unit of a group.
using UnitScores = std::vector<double>;

/// Sums positions of a slice by unit.
UnitScores by_unit(const sparsity::Slice& slice, int64_t size, const std::vector<double>& positions);

/// Entries of equal length, at least one; `first` is the position of the maker's entry.
UnitScores reduce(const std::vector<UnitScores>& entries, Reduction reduction, size_t first);

/// Where the divisor is zero, all scores are equal and stay so: no NaN comes of zeros.
void normalize(UnitScores& scores, Normalizer normalizer);

}  // namespace prunex::prune
