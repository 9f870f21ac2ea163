// Images and tar shards, as folders and shards bring them.
#include <webp/encode.h>

#include <algorithm>

#include "prunex/data/decode.h"
#include "prunex/data/shards.h"
#include "tests/data_tests/encoded.h"
#include "tests/fuzz/harness.h"

namespace prunex::fuzz {
namespace {

// The first byte of an input says what the rest is.
enum Kind : char { kImage = 'i', kPart = 'p', kTar = 't' };

/// A few bytes may stand for 100 million pixels: larger ones are left at the box, before memory is taken for them.
constexpr int64_t kMostPixels = 1 << 18;

data::Box whole(int64_t height, int64_t width) {
  if (height * width > kMostPixels) throw data::BrokenImage("more pixels than a fuzzer waits for");
  return data::whole_image(height, width);
}

/// A part in the middle, of 64 x 64 pixels at most.
data::Box middle(int64_t height, int64_t width) {
  whole(height, width);
  const int64_t rows = std::min<int64_t>(height, 64), columns = std::min<int64_t>(width, 64);
  return {.top = (height - rows) / 2, .left = (width - columns) / 2, .height = rows, .width = columns};
}

void decode(const std::string& bytes, const data::ChooseBox& choose) {
  const auto image = data::decode_image(bytes, choose);
  if (image.pixels.size() != static_cast<size_t>(image.height * image.width * 3)) fail("pixels that are not its size");
}

void read(char kind, const std::string& bytes) {
  if (kind == kImage) return decode(bytes, whole);
  if (kind == kPart) return decode(bytes, middle);
  if (kind != kTar) return;
  const auto listing = data::list_shards(file_of(bytes), "`dataset`");
  for (int64_t i = 0; i < std::min<int64_t>(listing.images->size(), 8); ++i) {
    try {
      decode(listing.images->read(i), middle);
    } catch (const data::BrokenImage&) {
    }
  }
}

std::string webp_of(const std::vector<uint8_t>& pixels, int height, int width, bool is_lossless) {
  uint8_t* bytes = nullptr;
  const size_t size = is_lossless ? WebPEncodeLosslessRGB(pixels.data(), width, height, 3 * width, &bytes)
                                  : WebPEncodeRGB(pixels.data(), width, height, 3 * width, 75, &bytes);
  const std::string file(reinterpret_cast<char*>(bytes), size);
  WebPFree(bytes);
  return file;
}

}  // namespace

void write_seeds(const std::string& directory) {
  const auto pixels = data::waves(24, 40, 3);
  for (const auto& [name, bytes] : {std::pair<std::string, std::string>{"jpeg", data::jpeg_of(pixels, 24, 40, {})},
                                    {"progressive", data::jpeg_of(pixels, 24, 40, {.progressive = true})},
                                    {"png", data::png_of(pixels, 24, 40)},
                                    {"webp", webp_of(pixels, 24, 40, false)},
                                    {"lossless", webp_of(pixels, 24, 40, true)}}) {
    write_seed(directory, name, "i" + bytes);
    write_seed(directory, name + "_part", "p" + bytes);
    const std::string sample = data::tar_member("a.jpg", bytes) + data::tar_member("a.cls", "1\n");
    write_seed(directory, name + "_tar", "t" + sample + std::string(1024, '\0'));
  }
}

}  // namespace prunex::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace prunex;
  if (size == 0) return -1;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  fuzz::expect_clear(size, [&] { fuzz::read(static_cast<char>(data[0]), bytes); });
  return 0;
}
