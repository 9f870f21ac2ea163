#include "prunex/data/decode.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <spng.h>
#include <webp/decode.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

namespace prunex::data {
namespace {

using PngContext = std::unique_ptr<spng_ctx, decltype(&spng_ctx_free)>;

void check_png(int status) {
  if (status != SPNG_OK) throw BrokenImage(fmt::format("PNG: {}", spng_strerror(status)));
}

/// Deflate makes no more than 1032 bytes of one: 258 of a length and a distance of a bit each.
void check_png_length(spng_ctx* context, const spng_ihdr& header, size_t file_bytes) {
  constexpr size_t kMostOfOne = 1032;
  size_t pixel_bytes = 0;
  check_png(spng_decoded_image_size(context, SPNG_FMT_PNG, &pixel_bytes));
  if (pixel_bytes / kMostOfOne <= file_bytes) return;
  throw BrokenImage(
      fmt::format("PNG: {} x {} pixels in {} bytes, the file is truncated", header.width, header.height, file_bytes));
}

DecodedImage decode_png(std::string_view bytes, const ChooseBox& choose) {
  constexpr size_t kMostChunk = size_t{64} << 20;  // profiles and texts
  const PngContext context(spng_ctx_new(0), spng_ctx_free);
  if (!context) throw std::bad_alloc();
  check_png(spng_set_chunk_limits(context.get(), kMostChunk, kMostChunk));
  check_png(spng_set_png_buffer(context.get(), bytes.data(), bytes.size()));
  spng_ihdr header;
  check_png(spng_get_ihdr(context.get(), &header));
  check_image_size(header.height, header.width);
  if (header.color_type == SPNG_COLOR_TYPE_GRAYSCALE && header.bit_depth == 16) {
    throw BrokenImage("PNG: greyscale of 16 bits, of which Pillow leaves 8: wanted 8");
  }
  check_png_length(context.get(), header, bytes.size());
  const Box box = choose(header.height, header.width);
  size_t size = 0;
  check_png(spng_decoded_image_size(context.get(), SPNG_FMT_RGB8, &size));
  DecodedImage image{header.height, header.width, std::vector<uint8_t>(size)};
  check_png(spng_decode_image(context.get(), image.pixels.data(), size, SPNG_FMT_RGB8, 0));
  return part_of(std::move(image), box);
}

DecodedImage decode_webp(std::string_view bytes, const ChooseBox& choose) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(data, bytes.size(), &features) != VP8_STATUS_OK) throw BrokenImage("WebP: a damaged header");
  if (features.has_animation != 0) throw BrokenImage("WebP: an animation, wanted one image");
  check_image_size(features.height, features.width);
  const Box box = choose(features.height, features.width);
  const int row = features.width * 3;
  DecodedImage image{features.height, features.width, std::vector<uint8_t>(static_cast<size_t>(row) * features.height)};
  if (WebPDecodeRGBInto(data, bytes.size(), image.pixels.data(), image.pixels.size(), row) == nullptr) {
    throw BrokenImage("WebP: damaged or truncated");
  }
  return part_of(std::move(image), box);
}

}  // namespace

void check_image_size(int64_t height, int64_t width) {
  if (height >= 1 && width >= 1 && height <= kMostImagePixels / width) return;
  throw BrokenImage(fmt::format("{} x {} pixels, wanted 1 to {}", width, height, kMostImagePixels));
}

DecodedImage part_of(DecodedImage whole, const Box& box) {
  if (box.height == whole.height && box.width == whole.width) return whole;
  const int64_t row = box.width * 3;
  DecodedImage part{box.height, box.width, std::vector<uint8_t>(static_cast<size_t>(box.height * row))};
  for (int64_t y = 0; y < box.height; ++y) {
    std::memcpy(part.pixels.data() + y * row, whole.pixels.data() + ((box.top + y) * whole.width + box.left) * 3,
                static_cast<size_t>(row));
  }
  return part;
}

std::string encode_png(const Picture& picture) {
  TORCH_CHECK(picture.channels == 1 || picture.channels == 3, "[data] a PNG of ", picture.channels, " channels");
  const PngContext context(spng_ctx_new(SPNG_CTX_ENCODER), spng_ctx_free);
  if (!context) throw std::bad_alloc();
  check_png(spng_set_option(context.get(), SPNG_ENCODE_TO_BUFFER, 1));
  spng_ihdr header{};
  header.height = static_cast<uint32_t>(picture.height);
  header.width = static_cast<uint32_t>(picture.width);
  header.bit_depth = 8;
  header.color_type = picture.channels == 1 ? SPNG_COLOR_TYPE_GRAYSCALE : SPNG_COLOR_TYPE_TRUECOLOR;
  check_png(spng_set_ihdr(context.get(), &header));
  check_png(spng_encode_image(context.get(), picture.pixels, static_cast<size_t>(picture.bytes()), SPNG_FMT_PNG,
                              SPNG_ENCODE_FINALIZE));
  size_t size = 0;
  int status = SPNG_OK;
  const std::unique_ptr<void, decltype(&std::free)> file(spng_get_png_buffer(context.get(), &size, &status), std::free);
  check_png(status);
  return {static_cast<const char*>(file.get()), size};
}

DecodedImage decode_image(std::string_view bytes, const ChooseBox& choose) {
  using namespace std::string_view_literals;
  if (bytes.starts_with("\xff\xd8\xff"sv)) return decode_jpeg(bytes, choose);
  if (bytes.starts_with("\x89PNG\r\n\x1a\n"sv)) return decode_png(bytes, choose);
  if (bytes.starts_with("RIFF"sv) && bytes.substr(0, 12).ends_with("WEBP"sv)) return decode_webp(bytes, choose);
  throw BrokenImage(bytes.empty() ? "an empty file" : "neither JPEG nor PNG nor WebP");
}

}  // namespace prunex::data
