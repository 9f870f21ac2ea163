// What a network says of its images, as text and applied.
#include "prunex/data/description.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace prunex::data {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

const Description kDescription{.mean = {0.1, 1.0 / 3}, .std = {0.2, 1e-7}, .classes = {"cat", "snow \"dog\""}};

Dataset two_channels() {
  return {.name = "pets",
          .images = at::zeros({3, 2, 4, 4}, at::kByte),
          .labels = at::zeros({3}, at::kLong),
          .classes = 2,
          .mean = {0.5, 0.5},
          .std = {0.25, 0.25}};
}

TEST(Description, IsReadBackToTheLastBit) {
  const Description read = parse_description(description_json(kDescription), "net.pt2");
  EXPECT_EQ(read.mean, kDescription.mean);
  EXPECT_EQ(read.std, kDescription.std);
  EXPECT_EQ(read.classes, kDescription.classes);
}

TEST(Description, SaysInWordsHowPixelsBecomeInput) {
  const json text = json::parse(description_json(kDescription));
  EXPECT_EQ(text["normalization"]["mean"][0], 0.1);
  EXPECT_EQ(text["input"], "float, N x C x H x W, (pixels / 255 - mean) / std");
}

TEST(Description, OfNamesThatAreNotUtf8IsWrittenAllTheSame) {
  const std::string text = description_json({.mean = {0.5}, .std = {0.5}, .classes = {"caf\xe9"}});
  EXPECT_EQ(parse_description(text, "net.pt2").classes, std::vector<std::string>{"caf\uFFFD"});
}

TEST(Description, SaysHowImagesAreScaledIfThatIsKnown) {
  const Description said{.mean = {0.5}, .std = {0.5}, .classes = {}, .resize = 73, .crop = 64};
  const Description read = parse_description(description_json(said), "net.pt2");
  EXPECT_EQ(read.resize, 73);
  EXPECT_EQ(read.crop, 64);
  EXPECT_EQ(parse_description(description_json(kDescription), "net.pt2").resize, 0);
  const Description whole = describe(two_channels());
  EXPECT_EQ(whole.resize, 4) << "images in memory are tested as they are";
  EXPECT_EQ(whole.crop, 4);
  for (const char* wrong : {"0", "-3", "1.5", "\"a\"", "[3]", "1e300", "100001"}) {
    EXPECT_THAT([&] { parse_description(std::string(R"({"resize": )") + wrong + "}", "net.pt2"); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("'resize' is no number of pixels from 1 to 100000")))
        << wrong;
  }
}

TEST(Description, MayLeaveEverythingOut) {
  const Description read = parse_description(R"({"author": "someone", "tags": [["a"]]})", "net.pt2");
  EXPECT_TRUE(read.mean.empty() && read.std.empty() && read.classes.empty());
}

TEST(Description, NamesWhatIsWrongInAFile) {
  const auto refused = [](const std::string& text, const std::string& why) {
    EXPECT_THAT([&] { parse_description(text, "net.pt2"); },
                ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("net.pt2: prunex.json: "), HasSubstr(why))))
        << text.substr(0, 60);
  };
  refused("", "is not a JSON object");
  refused("[1, 2]", "is not a JSON object");
  refused(std::string(200'000, '['), "is not a JSON object");
  refused(R"({"normalization": 3})", "'normalization' is not a JSON object");
  refused(R"({"normalization": {"mean": "0.5"}})", "'mean' is no list of numbers");
  refused(R"({"normalization": {"mean": [0.5, null]}})", "'mean' is no list of numbers");
  refused(R"({"normalization": {"mean": [0.5, 0.5], "std": [1]}})", "'mean' has 2 numbers, 'std' 1");
  refused(R"({"normalization": {"mean": [1e400], "std": [1]}})", "");
  refused(R"({"normalization": {"mean": [0.5], "std": [0]}})", "'std' has a number that is not above 0");
  refused(R"({"normalization": {"mean": [0.5], "std": [-1]}})", "'std' has a number that is not above 0");
  refused(R"({"classes": [1, 2]})", "'classes' is no list of names");
}

TEST(Description, ReplacesTheNumbersOfASetAndNamesItsClasses) {
  Dataset pets = two_channels();
  normalise_by(pets, kDescription, "net.pt2");
  EXPECT_EQ(pets.mean, kDescription.mean);
  EXPECT_EQ(pets.std, kDescription.std);
  EXPECT_EQ(pets.class_names, kDescription.classes);
}

TEST(Description, LeavesNamesThatTheSetHasAndNamesOfOtherClasses) {
  Dataset named = two_channels(), more = two_channels();
  named.class_names = {"a", "b"};
  more.classes = 3;
  normalise_by(named, kDescription, "net.pt2");
  normalise_by(more, kDescription, "net.pt2");
  EXPECT_THAT(named.class_names, ElementsAre("a", "b"));
  EXPECT_TRUE(more.class_names.empty());
}

TEST(Description, OfOtherChannelsIsRefused) {
  Dataset pets = two_channels();
  EXPECT_THAT(
      [&] {
        normalise_by(pets, {.mean = {1, 2, 3}, .std = {1, 1, 1}}, "net.pt2");
      },
      ThrowsMessage<std::invalid_argument>("net.pt2: normalises 3 channels, the images of pets have 2"));
}

TEST(Description, DiffersBeyondRoundingOnly) {
  Description other = kDescription;
  other.mean[0] += 1e-12;
  EXPECT_FALSE(normalise_differently(kDescription, other));
  other.mean[0] += 1e-3;
  EXPECT_TRUE(normalise_differently(kDescription, other));
  other = kDescription;
  other.std.pop_back();
  EXPECT_TRUE(normalise_differently(kDescription, other));
}

TEST(Description, NumbersClassesWithoutNames) {
  EXPECT_THAT(names_or_numbers({}, 3), ElementsAre("0", "1", "2"));
  EXPECT_THAT(names_or_numbers({"a", "b"}, 2), ElementsAre("a", "b"));
}

}  // namespace
}  // namespace prunex::data
