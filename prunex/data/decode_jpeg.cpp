#include "prunex/data/decode.h"

#include <cstddef>
#include <cstdio>

#include <jpeglib.h>

#include <jerror.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <string>
#include <type_traits>

namespace prunex::data {
namespace {

// Of a progressive file, each of whose scans goes over all pixels.
constexpr int kMostScans = 500;
constexpr int64_t kMostScannedPixels = 2'000'000'000;

struct JpegErrors {
  jpeg_error_mgr base;  // first: libjpeg knows only this
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
};

JpegErrors& errors_of(j_common_ptr info) {
  return *reinterpret_cast<JpegErrors*>(info->err);
}

[[noreturn]] void leave(j_common_ptr info) {
  info->err->format_message(info, errors_of(info).message);
  std::longjmp(errors_of(info).jump, 1);
}

/// Damage that libjpeg gets over stays: what Pillow reads as well. Not an end that comes too early.
void take_message(j_common_ptr info, int level) {
  if (level < 0 && info->err->msg_code == JWRN_JPEG_EOF) leave(info);
}

void watch_scans(j_common_ptr info) {
  const auto& image = *reinterpret_cast<j_decompress_ptr>(info);
  const int64_t pixels = std::max(int64_t{1}, int64_t{image.image_height} * image.image_width);
  const int64_t most = std::min<int64_t>(kMostScans, kMostScannedPixels / pixels);
  if (image.input_scan_number <= most) return;
  std::snprintf(errors_of(info).message, JMSG_LENGTH_MAX, "more than %d scans of this size", static_cast<int>(most));
  std::longjmp(errors_of(info).jump, 1);
}

/// A decompressor whose errors become exceptions.
class JpegReader {
 public:
  JpegReader() {
    info_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = leave;
    errors_.base.emit_message = take_message;
    guarded([&] { jpeg_create_decompress(&info_); });
    progress_.progress_monitor = watch_scans;
    info_.progress = &progress_;
  }
  ~JpegReader() { jpeg_destroy_decompress(&info_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  jpeg_decompress_struct& info() { return info_; }

  void read_header(std::string_view bytes) {
    guarded([&] {
      jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
      jpeg_read_header(&info_, TRUE);
    });
  }

  /// Calls of libjpeg alone: errors jump over what is in between.
  template <class Calls>
  void guarded(const Calls& calls) {
    static_assert(std::is_trivially_destructible_v<Calls>);
    if (setjmp(errors_.jump) != 0) throw BrokenImage(std::string("JPEG: ") + errors_.message);
    calls();
  }

 private:
  jpeg_decompress_struct info_{};
  JpegErrors errors_{};
  jpeg_progress_mgr progress_{};
};

/// Ink of 0 to 255, inverted as Adobe writes it, to RGB as Pillow computes it.
void rgb_of_ink(const uint8_t* ink, uint8_t* rgb) {
  const int white = ink[3];
  for (int c = 0; c < 3; ++c) {
    const int product = (255 - ink[c]) * white + 128;
    rgb[c] = static_cast<uint8_t>(std::clamp(white - ((product >> 8) + product) / 256, 0, 255));
  }
}

/// Whether the image has no end marker, as one that was cut, even if the rows that are wanted are there. Markers within
/// segments are of other images: a camera's thumbnail.
bool is_cut(std::string_view bytes) {
  constexpr unsigned char kEnd = 0xd9, kStart = 0xd8, kFirstRestart = 0xd0, kLastRestart = 0xd7;
  for (size_t at = bytes.find('\xff'); at < bytes.size(); at = bytes.find('\xff', at)) {
    at = std::min(bytes.find_first_not_of('\xff', at), bytes.size() - 1);
    const auto marker = static_cast<unsigned char>(bytes[at++]);
    if (marker == kEnd) return false;
    const bool has_segment = marker > 1 && marker != kStart && (marker < kFirstRestart || marker > kLastRestart);
    if (!has_segment) continue;  // data of a scan, too
    if (bytes.size() - at < 2) break;
    at += static_cast<size_t>(static_cast<unsigned char>(bytes[at]) << 8 | static_cast<unsigned char>(bytes[at + 1]));
  }
  return true;
}

/// Rows of `row` are wider than the box where libjpeg decodes whole blocks.
void take_row(const uint8_t* row, int64_t channels, int64_t width, uint8_t* out) {
  if (channels == 3) {
    std::memcpy(out, row, static_cast<size_t>(3 * width));
    return;
  }
  for (int64_t x = 0; x < width; ++x) rgb_of_ink(row + 4 * x, out + 3 * x);
}

}  // namespace

// Columns beside the box are decoded too: chroma at the edge of what is decoded has one neighbour only.
DecodedImage decode_jpeg(std::string_view bytes, const ChooseBox& choose) {
  constexpr int64_t kBeside = 8;
  if (is_cut(bytes)) throw BrokenImage("JPEG: no end marker, the file is truncated");
  JpegReader reader;
  reader.read_header(bytes);
  jpeg_decompress_struct& info = reader.info();
  check_image_size(info.image_height, info.image_width);
  if (info.num_components != 1 && info.num_components != 3 && info.num_components != 4) {
    throw BrokenImage("JPEG: " + std::to_string(info.num_components) + " channels, wanted 1, 3 or 4");
  }
  info.out_color_space = info.num_components == 4 ? JCS_CMYK : JCS_RGB;
  const Box box = choose(info.image_height, info.image_width);
  const int64_t right = std::min<int64_t>(box.left + box.width + kBeside, info.image_width);
  JDIMENSION left = static_cast<JDIMENSION>(std::max<int64_t>(box.left - kBeside, 0));
  JDIMENSION width = static_cast<JDIMENSION>(right - left);
  reader.guarded([&] {
    jpeg_start_decompress(&info);
    if (width < info.output_width) jpeg_crop_scanline(&info, &left, &width);
    if (box.top > 0) jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(box.top));
  });
  const int64_t channels = info.out_color_components;
  DecodedImage image{box.height, box.width, std::vector<uint8_t>(static_cast<size_t>(box.height * box.width * 3))};
  std::vector<uint8_t> row(static_cast<size_t>(info.output_width * channels));
  for (int64_t y = 0; y < box.height; ++y) {
    JSAMPROW into = row.data();
    reader.guarded([&] { jpeg_read_scanlines(&info, &into, 1); });
    take_row(row.data() + (box.left - left) * channels, channels, box.width, image.pixels.data() + y * box.width * 3);
  }
  return image;
}

}  // namespace prunex::data
