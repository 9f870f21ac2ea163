#include "prunex/data/image_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "prunex/data/augment.h"
#include "prunex/data/decode.h"
#include "prunex/say.h"
#include "prunex/text/one_line.h"

namespace prunex::data {
namespace {

/// Sizes whose shorter one is `shortest`, as torchvision rounds them.
std::pair<int64_t, int64_t> resized(int64_t height, int64_t width, int64_t shortest) {
  const auto longest =
      static_cast<int64_t>(static_cast<double>(shortest) * static_cast<double>(std::max(height, width)) /
                           static_cast<double>(std::min(height, width)));
  return height <= width ? std::pair{shortest, longest} : std::pair{longest, shortest};
}

int64_t middle(int64_t all, int64_t part) {
  return static_cast<int64_t>(std::nearbyint(static_cast<double>(all - part) / 2));
}

}  // namespace

void check_scaled_size(const DecodedImage& image, int64_t resize) {
  const auto [height, width] = resized(image.height, image.width, resize);
  try {
    check_image_size(height, width);
  } catch (const BrokenImage& error) {
    throw BrokenImage(fmt::format("{} x {} pixels, scaled for tests: {}", image.height, image.width, error.what()));
  }
}

ImageStream::ImageStream(std::unique_ptr<EncodedImages> images, const StreamOptions& options)
    : images_(std::move(images)), options_(options) {}

void ImageStream::plain(int64_t number, const Picture& out) const {
  DecodedImage image = decode_image(images_->read(number), whole_image);
  check_scaled_size(image, options_.resize);
  const auto [height, width] = resized(image.height, image.width, options_.resize);
  std::vector<uint8_t> pixels(static_cast<size_t>(height * width * 3));
  const Picture scaled{pixels.data(), height, width, 3};
  resize(image.picture(), whole_image(image.height, image.width), scaled);
  resize(scaled, {middle(height, out.height), middle(width, out.width), out.height, out.width}, out);
}

void ImageStream::resized_crop(int64_t number, Random random, const Picture& out) const {
  DecodedImage image = decode_image(
      images_->read(number), [&](int64_t height, int64_t width) { return resized_crop_box(height, width, random); });
  resize(image.picture(), whole_image(image.height, image.width), out);
}

void ImageStream::report_broken(int64_t number, const std::string& why) const {
  const std::lock_guard lock(mutex_);
  const bool is_new = broken_.emplace(number, why).second;
  const auto count = static_cast<int64_t>(broken_.size());
  const std::string line = fmt::format("{}: {}", text::one_line(images_->name(number), text::kLongestPath), why);
  if (count > options_.max_broken) {
    throw std::runtime_error(
        fmt::format("{}: broken file number {}, `max_broken` allows {}", line, count, options_.max_broken));
  }
  if (!is_new) return;
  say(fmt::format("prunex: warning: {}: the next image takes its place (broken: {})\n", line, count));
}

std::vector<int64_t> ImageStream::broken() const {
  const std::lock_guard lock(mutex_);
  std::vector<int64_t> numbers;
  for (const auto& [number, why] : broken_) numbers.push_back(number);
  return numbers;
}

}  // namespace prunex::data
