// TOML: https://toml.io/en/v1.0.0. What is written must read back as the same words.
#include "prunex/text/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/texts.h"

namespace prunex::text {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;
using tests::message;

std::string refusal(const std::string& text) {
  return message([&] { read_settings(text, "f.toml"); });
}

std::string value_in(const std::string& text) {
  const auto settings = read_settings(text, "f.toml");
  return settings.size() == 1 ? settings[0].value : "not one";
}

TEST(Settings, AreInTheOrderOfTheFileWithTheirLines) {
  const auto settings = read_settings("\nb = 0.1 # of the peak\na = \"x # y\"\n\nquiet = true\nranks = [2, 1]\n", "f");
  ASSERT_THAT(settings, SizeIs(4));
  const std::vector<Setting> wanted{{"b", "0.1", SettingKind::kNumber, 2},
                                    {"a", "x # y", SettingKind::kWord, 3},
                                    {"quiet", "true", SettingKind::kSwitch, 5},
                                    {"ranks", "2,1", SettingKind::kList, 6}};
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(settings[i].name, wanted[i].name);
    EXPECT_EQ(settings[i].value, wanted[i].value);
    EXPECT_EQ(settings[i].kind, wanted[i].kind);
    EXPECT_EQ(settings[i].line, wanted[i].line);
  }
}

TEST(Settings, EveryFormOfAStringIsTheWord) {
  EXPECT_EQ(value_in(R"(a = "C:\\data \"new\" \u00e4")"), "C:\\data \"new\" ä");
  EXPECT_EQ(value_in(R"(a = 'C:\data')"), "C:\\data");
  EXPECT_EQ(value_in("a = \"\"\"\ntwo\nlines\"\"\"\n"), "two\nlines");
  EXPECT_EQ(value_in("a = \"\""), "");
}

TEST(Settings, AByteOrderMarkAndCarriageReturnsArePassedOver) {
  EXPECT_EQ(value_in("\xef\xbb\xbfmodel = \"a.pt2\"\r\n"), "a.pt2");
}

TEST(Settings, NumbersAreWhatACommandLineTakes) {
  EXPECT_EQ(value_in("a = 1_000"), "1000");
  EXPECT_EQ(value_in("a = 1e-3"), "0.001");
  EXPECT_EQ(value_in("a = 0.1"), "0.1");
  EXPECT_EQ(value_in("a = 3.0"), "3");
  EXPECT_EQ(value_in("a = inf"), "inf");
}

TEST(Settings, WhatIsWrongIsNamedByFileAndLine) {
  EXPECT_THAT(refusal("a = 1\nb = \n"), StartsWith("f.toml:2: "));
  EXPECT_THAT(refusal("a = 1\nb = 2\na = 3\n"), AllOf(StartsWith("f.toml:3: "), HasSubstr("'a'")));
  EXPECT_THAT(refusal("a = 1\n[b]\nc = 1\n"), StartsWith("f.toml:2: 'b' is a table, wanted name = value"));
  EXPECT_THAT(refusal("a.b = 1\n"), StartsWith("f.toml:1: 'a' is a table"));
  EXPECT_THAT(refusal("[[a]]\nb = 1\n"), StartsWith("f.toml:1: 'a' is a table"));
  EXPECT_THAT(refusal("a = 2026-01-01\n"), StartsWith("f.toml:1: 'a' has no value that fits"));
  EXPECT_THAT(refusal("a = [[1]]\n"), StartsWith("f.toml:1: 'a' has no value that fits"));
  EXPECT_THAT(refusal("a = \"\xff\"\n"), StartsWith("f.toml:1: "));
  EXPECT_THAT(refusal("[=a { ]\n"), StartsWith("f.toml:1: "));
  EXPECT_THAT(refusal("a = 1\n\u00a9 = 2\n"), StartsWith("f.toml:2: "));
  EXPECT_THAT(refusal("\"a\\nb\" = 2026-01-01\n"), AllOf(HasSubstr("'a\\nb'"), Not(HasSubstr("\n"))));
}

TEST(Settings, NestingAndLengthAreBounded) {
  std::string dotted = "a";
  for (int i = 0; i < 100'000; ++i) dotted += ".a";
  EXPECT_THAT(refusal(dotted + " = 1"), HasSubstr("dots"));
  EXPECT_THAT(refusal("a = " + std::string(200'000, '[')), StartsWith("f.toml:1: "));
  EXPECT_THAT(refusal(std::string(2 << 20, '\n')), HasSubstr("bytes"));
}

// A path may hold all of these.
TEST(Settings, AnyWordSurvivesWritingAndReading) {
  std::vector<std::string> words{"",
                                 "a b",
                                 " a ",
                                 "#",
                                 "a#b",
                                 "\"",
                                 "'",
                                 "\"'",
                                 "'''",
                                 "\"\"\"",
                                 "\\",
                                 "\\n",
                                 "a\nb",
                                 "\n",
                                 "\r\n",
                                 "\t",
                                 "[1, 2]",
                                 "{a = 1}",
                                 "true",
                                 "True",
                                 "007",
                                 "1_000",
                                 "0x10",
                                 "1e5",
                                 "1.0",
                                 "-0",
                                 "+1",
                                 "inf",
                                 "nan",
                                 "-nan",
                                 ".5",
                                 "5.",
                                 "1e-05",
                                 "ä/ö",
                                 "日本",
                                 "\U0001F600",
                                 "\x7f",
                                 "\x01\x02",
                                 "\x1b[",
                                 "a=b",
                                 "\u00a0",
                                 "2026-01-01",
                                 "9223372036854775808",
                                 "--",
                                 "\xef\xbb\xbf",
                                 "\u2028"};
  for (const std::string& word : words) {
    const std::string line = setting_line("a", word);
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
    EXPECT_EQ(value_in(line), word) << line;
    EXPECT_EQ(word_of(toml_of(word)), word) << line;
  }
}

TEST(Settings, RandomWordsSurviveWritingAndReading) {
  std::mt19937 random(1);
  const std::string letters = "a0.\"'\\\n\r\t#=[]{},_-+e \x01\x7f";
  for (int i = 0; i < 2000; ++i) {
    std::string word;
    for (size_t length = random() % 8; length > 0; --length) word += letters[random() % letters.size()];
    EXPECT_EQ(value_in(setting_line("a", word)), word) << setting_line("a", word);
  }
}

TEST(Settings, NumbersAndSwitchesAreWrittenWithoutQuotes) {
  EXPECT_EQ(setting_line("lr", "0.25"), "lr = 0.25\n");
  EXPECT_EQ(setting_line("seed", "7"), "seed = 7\n");
  EXPECT_EQ(setting_line("quiet", "true"), "quiet = true\n");
  EXPECT_EQ(setting_line("model", "007"), "model = \"007\"\n");
}

TEST(Settings, AWordThatIsNotUtf8IsRefusedByName) {
  EXPECT_THAT(message([] { setting_line("dataset", "\xff"); }),
              StartsWith("`dataset`: got '\xff', which is not UTF-8"));
}

TEST(Settings, WhatIsNoValueOfTomlIsTheWordItself) {
  EXPECT_EQ(word_of("ddp"), "ddp");
  EXPECT_EQ(word_of("\"ddp\""), "ddp");
  EXPECT_EQ(word_of("1\nb = 2"), "1\nb = 2");
}

}  // namespace
}  // namespace prunex::text
