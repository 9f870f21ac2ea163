// JSON of strangers: RFC 8259 says what is JSON; lines and columns are counted by hand.
#include "prunex/text/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "prunex/text/one_line.h"
#include "tests/texts.h"

namespace prunex::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using tests::message;

std::string nested(size_t levels, const std::string& open, const std::string& close) {
  std::string text;
  for (size_t i = 0; i < levels; ++i) text += open;
  text += "1";
  for (size_t i = 0; i < levels; ++i) text += close;
  return text;
}

TEST(Json, NestsToTheLimitAndNoDeeper) {
  EXPECT_TRUE(is_json(nested(kDeepestJson, "[", "]")));
  EXPECT_TRUE(is_json(nested(kDeepestJson, "{\"a\":", "}")));
  const std::string deeper = "nested deeper than 100 levels (line 1, column 101)";
  EXPECT_EQ(message([] { parse_json(nested(kDeepestJson + 1, "[", "]")); }), deeper);
  EXPECT_EQ(message([] { parse_ordered_json(nested(kDeepestJson + 1, "[", "]")); }), deeper);
  EXPECT_EQ(message([] { parse_json("\n" + std::string(200'000, '['), 7); }),
            "nested deeper than 100 levels (line 8, column 101)");
}

TEST(Json, BracketsInStringsDoNotNest) {
  const std::string brackets(1000, '[');
  EXPECT_EQ(parse_json("\"" + brackets + "\""), brackets);
  EXPECT_EQ(parse_json(R"(["\"[[[", "\\"])"), (nlohmann::json{"\"[[[", "\\"}));
  EXPECT_THAT(message([&] { parse_json("[\"\\\\\"," + brackets); }), HasSubstr("nested deeper"));
}

TEST(Json, WhatIsNoneIsNamedByPlace) {
  EXPECT_EQ(message([] { parse_json(""); }), "not valid JSON (line 1, column 1)");
  EXPECT_EQ(message([] { parse_json("{\n  \"a\" 1}"); }), "not valid JSON (line 2, column 7)");
  EXPECT_EQ(message([] { parse_json("[\"\xff\"]"); }), "not valid JSON (line 1, column 3)");
  EXPECT_EQ(message([] { parse_json("[1e999]"); }), "not valid JSON: a number is too large");
  EXPECT_FALSE(is_json("{\"a\":"));
}

TEST(Json, MemberNamesKeepOrderAndRepetitions) {
  EXPECT_THAT(member_names(R"({"b": {"x": 1}, "a": [{"y": 2}], "b": 3})"), ElementsAre("b", "a", "b"));
  EXPECT_THAT(member_names("[1]"), ElementsAre());
}

TEST(Json, ReasonsAreWithoutTheLibrarysNumbersAndNames) {
  const auto reason_of = [](const char* text) {
    try {
      return parse_json(text).at("a").at("b").get<std::string>();
    } catch (const std::exception& error) {
      return reason(error);
    }
  };
  EXPECT_EQ(reason_of("{}"), "key 'a' not found");
  EXPECT_EQ(reason_of(R"({"a": 1})"), "got number, wanted an object or a list");
  EXPECT_EQ(reason_of(R"({"a": {"b": 1}})"), "type must be string, but is number");
  EXPECT_EQ(reason(std::runtime_error("[x] y")), "[x] y");
}

TEST(OneLine, HasNoLineBreaksAndAnEnd) {
  EXPECT_EQ(one_line("a\nb\tc\x7f välue"), "a\\nb\\x09c\\x7f välue");
  EXPECT_EQ(one_line(std::string(100, 'x')), std::string(100, 'x'));
  EXPECT_EQ(one_line(std::string(99, 'x') + "äö"), std::string(99, 'x') + "ä...");
}

TEST(OneLine, KnowsUtf8) {
  EXPECT_TRUE(is_utf8("välue \U0001F600"));
  EXPECT_FALSE(is_utf8("\xff"));
  EXPECT_FALSE(is_utf8("\xc3"));
}

}  // namespace
}  // namespace prunex::text
