// Pixels of a set's images, as training and as evaluation see them.
#pragma once

#include <cstdint>
#include <vector>

#include "prunex/data/augment.h"
#include "prunex/data/dataset.h"

namespace prunex::data {

/// Borrows the set. Calls are const and may come from several threads.
class Pixels {
 public:
  /// `own`: numbers of images, of which another one stands in for a broken one; empty: any of the set's.
  explicit Pixels(const Dataset& dataset, std::vector<int64_t> own = {});

  int64_t image_bytes() const { return height_ * row_; }

  /// Into `out`: height x width x channels. Return the number of the image that it is: where that is broken, the next
  /// one that is not.
  int64_t plain(int64_t number, uint8_t* out) const;
  int64_t augmented(int64_t number, const Draws& draws, uint8_t* out) const;

  void normalise(const uint8_t* image, float* out) const;

 private:
  void shift(const uint8_t* image, const Draws& draws, uint8_t* out) const;
  const uint8_t* stored(int64_t number) const;
  int64_t next(int64_t number) const;
  template <class Make>
  int64_t first_whole(int64_t number, const Make& make) const;
  void augment(int64_t image, Draws draws, uint8_t* out) const;

  const Dataset& dataset_;
  std::vector<int64_t> own_;                       // ascending
  const int64_t channels_, height_, width_, row_;  // row_: bytes
  const std::vector<uint8_t> mean_;
  std::vector<float> scale_, shift_;  // of a whole row: one straight loop, whatever the number of channels
};

}  // namespace prunex::data
