// Decoders: parts of images, forms of files, damage (tests/pytorch/folders.py has Pillow's pixels).
#include "prunex/data/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/data_tests/encoded.h"

namespace prunex::data {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<uint8_t> decoded(const std::string& bytes, const Box& box) {
  return decode_image(bytes, [&](int64_t, int64_t) { return box; }).pixels;
}

void broken(const std::string& bytes, const std::string& why) {
  EXPECT_THAT([&] { decode_image(bytes, whole_image); }, ThrowsMessage<BrokenImage>(HasSubstr(why)));
}

TEST(Decode, APartHasThePixelsOfTheWhole) {
  constexpr int kHeight = 83, kWidth = 117;
  for (const JpegForm& form : {JpegForm{}, JpegForm{.across = 1, .down = 1}, JpegForm{.across = 2, .down = 1},
                               JpegForm{.across = 1, .down = 2}, JpegForm{.across = 4, .down = 1},
                               JpegForm{.progressive = true}, JpegForm{.channels = 1}, JpegForm{.channels = 4}}) {
    const std::string bytes = jpeg_of(waves(kHeight, kWidth, form.channels), kHeight, kWidth, form);
    DecodedImage whole = decode_image(bytes, whole_image);
    ASSERT_EQ(whole.height, kHeight);
    ASSERT_EQ(whole.width, kWidth);
    for (const Box& box : {Box{0, 0, 83, 117}, Box{16, 32, 20, 20}, Box{17, 33, 1, 1}, Box{1, 1, 81, 115},
                           Box{50, 0, 33, 9}, Box{0, 110, 83, 7}, Box{82, 116, 1, 1}, Box{31, 47, 19, 66}}) {
      EXPECT_EQ(decoded(bytes, box), part_of(whole, box).pixels)
          << form.channels << " " << form.across << " " << form.down << " at " << box.top << ", " << box.left;
    }
  }
}

TEST(Decode, IsCloseToWhatWasEncoded) {
  const auto pixels = waves(40, 50, 3);
  EXPECT_EQ(decode_image(png_of(pixels, 40, 50), whole_image).pixels, pixels);
  EXPECT_EQ(decoded(png_of(pixels, 40, 50), {39, 49, 1, 1}), std::vector<uint8_t>(pixels.end() - 3, pixels.end()));
  const auto grey = decode_image(jpeg_of(waves(40, 50, 1), 40, 50, {.channels = 1}), whole_image).pixels;
  const auto was = waves(40, 50, 1);
  double difference = 0;
  for (size_t i = 0; i < was.size(); ++i) difference += std::abs(was[i] - grey[3 * i + 1]) / 2000.0;
  EXPECT_LT(difference, 8) << "of 75 % quality, with noise of 32 levels";
}

/// encode_png() of the pixels, read again.
std::vector<uint8_t> there_and_back(std::vector<uint8_t> pixels, int64_t channels) {
  return decode_image(encode_png({pixels.data(), 40, 50, channels}), whole_image).pixels;
}

TEST(Decode, ReadsWhatIsEncoded) {
  const auto pixels = waves(40, 50, 3), grey = waves(40, 50, 1);
  EXPECT_EQ(there_and_back(pixels, 3), pixels);
  const auto read = there_and_back(grey, 1);
  ASSERT_EQ(read.size(), 3 * grey.size());
  for (size_t i = 0; i < read.size(); ++i) ASSERT_EQ(read[i], grey[i / 3]) << i;
}

TEST(Decode, NamesWhatIsBroken) {
  const std::string jpeg = jpeg_of(waves(40, 50, 3), 40, 50), png = png_of(waves(40, 50, 3), 40, 50);
  broken("", "an empty file");
  broken("GIF89a", "neither JPEG nor PNG nor WebP");
  broken("<html>404</html>", "neither JPEG nor PNG nor WebP");
  broken(jpeg.substr(0, jpeg.size() / 2), "JPEG: no end marker, the file is truncated");
  broken(jpeg.substr(0, jpeg.size() / 2) + "\xff\xd9", "JPEG: ");
  broken(jpeg.substr(0, 20) + "\xff\xd9", "JPEG: ");
  broken(png.substr(0, png.size() / 2), "PNG: ");
  broken(png.substr(0, 20), "PNG: ");
  broken(std::string("RIFF\x04\0\0\0WEBPVP8 ", 16), "WebP: ");
}

TEST(Decode, RefusesBombsBeforeTakingMemory) {
  std::string jpeg = jpeg_of(waves(8, 8, 3), 8, 8);
  const size_t frame = jpeg.find("\xff\xc0");
  for (const size_t at : {5, 6, 7, 8}) jpeg[frame + at] = '\xfe';
  broken(jpeg, "65278 x 65278 pixels, wanted 1 to 100000000");
}

TEST(Decode, EndsOnAnyDamage) {
  for (const std::string& good : {jpeg_of(waves(40, 50, 3), 40, 50), png_of(waves(40, 50, 3), 40, 50),
                                  jpeg_of(waves(40, 50, 3), 40, 50, {.progressive = true})}) {
    for (size_t at = 3; at < good.size(); at += 7) {
      for (const char value : {'\0', '\xff', '\x7f'}) {
        std::string bad = good;
        bad[at] = value;
        try {
          const auto image = decode_image(bad, whole_image);
          EXPECT_EQ(image.pixels.size(), static_cast<size_t>(image.height * image.width * 3));
        } catch (const BrokenImage& error) {
          EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
        }
      }
    }
  }
}

}  // namespace
}  // namespace prunex::data
