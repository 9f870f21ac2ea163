// Images that are decoded when they are wanted.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "prunex/data/decode.h"
#include "prunex/data/encoded_images.h"
#include "prunex/data/operations.h"
#include "prunex/data/random.h"

namespace prunex::data {

struct StreamOptions {
  int64_t size = 224;       ///< side of the squares that come out
  int64_t resize = 256;     ///< the shorter side that an image gets before the square is cut out of its middle
  int64_t threads = 4;      ///< that decode
  int64_t prefetch = 4;     ///< batches that are decoded ahead of training
  int64_t max_broken = 10;  ///< files that may be broken
};

/// The shorter side for images of `size`: 256 for 224.
constexpr int64_t usual_resize(int64_t size) {
  return size * 8 / 7;
}

/// Throws BrokenImage for a strip that would be too long once its shorter side is `resize`.
void check_scaled_size(const DecodedImage& image, int64_t resize);

/// Calls are const and may come from several threads.
class ImageStream {
 public:
  ImageStream(std::unique_ptr<EncodedImages> images, const StreamOptions& options);

  const StreamOptions& options() const { return options_; }
  const EncodedImages& images() const { return *images_; }

  // RGB of image `number` into `out`, a square of options().size. Throw BrokenImage.

  /// As torchvision's presets evaluate: resize, then the middle.
  void plain(int64_t number, const Picture& out) const;
  /// RandomResizedCrop of the draws.
  void resized_crop(int64_t number, Random random, const Picture& out) const;

  /// Counts image `number` and says on standard error why it is broken, once. std::runtime_error if these are too many.
  void report_broken(int64_t number, const std::string& why) const;
  /// Numbers of the images that were reported.
  std::vector<int64_t> broken() const;

 private:
  const std::unique_ptr<EncodedImages> images_;
  const StreamOptions options_;
  mutable std::mutex mutex_;
  mutable std::map<int64_t, std::string> broken_;
};

}  // namespace prunex::data
