#include "tests/data_tests/encoded.h"

#include <fmt/format.h>
#include <spng.h>

#include <cmath>
#include <cstddef>
#include <cstdlib>

#include <jpeglib.h>

namespace prunex::data {

std::string jpeg_of(const std::vector<uint8_t>& pixels, int height, int width, const JpegForm& form) {
  jpeg_compress_struct info;
  jpeg_error_mgr errors;
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_height = static_cast<JDIMENSION>(height);
  info.image_width = static_cast<JDIMENSION>(width);
  info.input_components = form.channels;
  info.in_color_space = form.channels == 1 ? JCS_GRAYSCALE : form.channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  if (form.channels == 3) {
    info.comp_info[0].h_samp_factor = form.across;
    info.comp_info[0].v_samp_factor = form.down;
  }
  if (form.progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  for (int y = 0; y < height; ++y) {
    auto* row = const_cast<JSAMPROW>(pixels.data() + static_cast<size_t>(y) * width * form.channels);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  std::string file(reinterpret_cast<char*>(bytes), size);
  jpeg_destroy_compress(&info);
  std::free(bytes);
  return file;
}

std::string png_of(const std::vector<uint8_t>& pixels, int height, int width) {
  spng_ctx* context = spng_ctx_new(SPNG_CTX_ENCODER);
  spng_set_option(context, SPNG_ENCODE_TO_BUFFER, 1);
  spng_ihdr header{};
  header.height = static_cast<uint32_t>(height);
  header.width = static_cast<uint32_t>(width);
  header.color_type = SPNG_COLOR_TYPE_TRUECOLOR;
  header.bit_depth = 8;
  spng_set_ihdr(context, &header);
  spng_encode_image(context, pixels.data(), pixels.size(), SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE);
  size_t size = 0;
  int status = 0;
  void* bytes = spng_get_png_buffer(context, &size, &status);
  std::string file(static_cast<char*>(bytes), size);
  std::free(bytes);
  spng_ctx_free(context);
  return file;
}

std::vector<uint8_t> waves(int height, int width, int channels, int seed) {
  std::vector<uint8_t> pixels;
  uint32_t noise = 12345U + static_cast<uint32_t>(seed);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        noise = noise * 1664525U + 1013904223U;
        const double wave = std::sin(0.05 * (c + 1) * x + 0.07 * y * (3 - c) + seed);
        pixels.push_back(static_cast<uint8_t>(128 + 90 * wave + noise % 32));
      }
    }
  }
  return pixels;
}

std::string tar_member(const std::string& name, const std::string& bytes, char type) {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  header.replace(124, 11, fmt::format("{:011o}", bytes.size()));
  header[156] = type;
  header.replace(257, 8,
                 std::string("ustar\0"
                             "00",
                             8));
  header.replace(148, 8, "        ");
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  header.replace(148, 7, fmt::format("{:06o}", sum) + '\0');
  return header + bytes + std::string((512 - bytes.size() % 512) % 512, '\0');
}

}  // namespace prunex::data
