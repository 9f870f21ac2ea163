// Decoders: parts of images, forms of files, damage (tests/pytorch/folders.py has Pillow's pixels).
#include "prunex/data/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  const std::string thumbnail = std::string("\xff\xe1", 2) + std::string("\x00\x06", 2) + "ab\xff\xd9";
  const std::string photo = jpeg.substr(0, 2) + thumbnail + jpeg.substr(2);
  EXPECT_EQ(decode_image(photo, whole_image).pixels, decode_image(jpeg, whole_image).pixels);
  broken(photo.substr(0, photo.size() - 9), "JPEG: no end marker, the file is truncated");
  broken(jpeg.substr(0, jpeg.size() / 2) + "\xff\xd9", "JPEG: ");
  broken(jpeg.substr(0, 20) + "\xff\xd9", "JPEG: ");
  broken(png.substr(0, png.size() / 2), "PNG: ");
  broken(png.substr(0, 20), "PNG: ");
  broken(std::string("RIFF\x04\0\0\0WEBPVP8 ", 16), "WebP: ");
}

/// CRC-32 of the PNG specification, annex D.
uint32_t checksum(const std::string& bytes) {
  uint32_t sum = 0xffffffff;
  for (const unsigned char byte : bytes) {
    sum ^= byte;
    for (int bit = 0; bit < 8; ++bit) sum = (sum & 1) != 0 ? 0xedb88320 ^ (sum >> 1) : sum >> 1;
  }
  return ~sum;
}

std::string big_endian(uint32_t number) {
  return {static_cast<char>(number >> 24), static_cast<char>(number >> 16), static_cast<char>(number >> 8),
          static_cast<char>(number)};
}

/// The file with another size in its header.
std::string png_that_says(std::string png, uint32_t height, uint32_t width) {
  png.replace(16, 8, big_endian(width) + big_endian(height));
  return png.replace(29, 4, big_endian(checksum(png.substr(12, 17))));
}

TEST(Decode, RefusesBombsBeforeTakingMemory) {
  std::string jpeg = jpeg_of(waves(8, 8, 3), 8, 8);
  const size_t frame = jpeg.find("\xff\xc0");
  for (const size_t at : {5, 6, 7, 8}) jpeg[frame + at] = '\xfe';
  broken(jpeg, "65278 x 65278 pixels, wanted 1 to 100000000");
  broken(png_that_says(png_of(waves(8, 8, 3), 8, 8), 9999, 9998), "PNG: 9998 x 9999 pixels in ");
}

TEST(Decode, AsksForTheBoxBeforeItTakesMemory) {
  struct Asked {};
  const ChooseBox ask = [](int64_t, int64_t) -> Box { throw Asked(); };
  std::string webp("RIFF\x20\0\0\0WEBPVP8L\x10\0\0\0\x2f\xff\xff\xff\xff", 25);  // 16384 x 16384, then nothing
  EXPECT_THROW(decode_image(webp + std::string(15, '\0'), ask), BrokenImage);
  webp.replace(21, 4, std::string("\x0f\x67\xc3\x09", 4));  // 10000 x 9998: as many bits as it has, and no pixels
  EXPECT_THROW(decode_image(webp + std::string(15, '\0'), ask), Asked);
  EXPECT_THROW(decode_image(png_of(waves(8, 8, 3), 8, 8), ask), Asked);
  EXPECT_THROW(decode_image(jpeg_of(waves(8, 8, 3), 8, 8), ask), Asked);
}

TEST(Decode, RefusesMoreScansThanAnyoneWaitsFor) {
  const JpegForm form{.channels = 1, .progressive = true};
  const std::string few = jpeg_of(waves(40, 50, 1), 40, 50, form);
  const std::string scan = few.substr(few.rfind("\xff\xda"), few.size() - 2 - few.rfind("\xff\xda"));
  std::string many = few.substr(0, few.size() - 2);
  for (int i = 0; i < 30; ++i) many += scan;
  EXPECT_EQ(decode_image(many + "\xff\xd9", whole_image).pixels.size(), size_t{3 * 40 * 50});
  std::string large = many + "\xff\xd9";
  const size_t frame = large.find("\xff\xc2");
  large.replace(frame + 5, 4, "\x05\xdc\xff\xdc");  // 1500 rows of 65500
  broken(large, "more than 20 scans of this size");
  for (int i = 0; i < 500; ++i) many += scan;
  broken(many + "\xff\xd9", "more than 500 scans of this size");
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
