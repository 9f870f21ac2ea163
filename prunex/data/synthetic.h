// Images drawn by a procedure, for trials without any download.
#pragma once

#include <cstdint>

#include "prunex/data/dataset.h"

namespace prunex::data {

/// `samples` training images and samples / 5 (at least 10) test images, 32 x 32 in colour, of 10 balanced classes:
/// disc, ring, square, frame, triangle, plus, cross, horizontal stripes, vertical stripes, checks. Place, size, tilt,
/// colours, lighting, clutter and noise are random, so no pixel by itself tells the class.
/// Image i is a function of (seed, i) alone, on every platform; more samples extend the same sequence.
/// std::invalid_argument names `samples` if it is below 10.
TrainAndTest make_synthetic(int64_t samples, uint64_t seed);

}  // namespace prunex::data
