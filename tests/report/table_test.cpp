// Expected texts and lines are written by hand.
#include "report/format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "report/tasks.h"

namespace prunex::report {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> column(const std::vector<double>& values, int digits = 3) {
  Table table{{{"x", {}, digits}}, {}};
  for (const double value : values) table.rows.push_back({value});
  std::vector<std::string> texts;
  for (const auto& row : texts_of(table)) texts.push_back(row[0]);
  return texts;
}

TEST(Table, NumbersOfAColumnHaveTheSameDecimals) {
  EXPECT_THAT(column({7.466, 31, 9.1}), ElementsAre("7.5", "31.0", "9.1"));
  EXPECT_THAT(column({52.7, 312, 0}), ElementsAre("53", "312", "0"));
  EXPECT_THAT(column({16, 4, 12}), ElementsAre("16", "4", "12"));
  EXPECT_THAT(column({0.306, 0.3731}), ElementsAre("0.306", "0.373"));
}

TEST(Table, NumbersOfVeryDifferentSizesHaveTheirOwnDecimals) {
  EXPECT_THAT(column({1.739, 1085.11, 34.84}), ElementsAre("1.74", "1085", "34.8"));
}

TEST(Table, ColumnsOfNumbersStandToTheRight) {
  const Table table{{{"run", {}}, {"n", {}}, {.name = "accuracy", .right = true}, {"mixed", {}}, {"empty", {}}},
                    {{"a", 1.0, "9 ± 1 %", 3.0, {}}, {"b", {}, {}, "none", {}}}};
  std::vector<bool> right;
  for (size_t i = 0; i < table.columns.size(); ++i) right.push_back(is_right_aligned(table, i));
  EXPECT_THAT(right, ElementsAre(false, true, true, false, false));
}

TEST(Table, EmptyColumnsGoButTheFirst) {
  const Table table{{{"a", {}}, {"b", {}}, {"c", {}}}, {{{}, {}, 1.0}, {{}, {}, {}}}};
  const Table kept = without_empty_columns(table);
  ASSERT_EQ(kept.columns.size(), 2U);
  EXPECT_EQ(kept.columns[1].name, "c");
  EXPECT_EQ(kept.rows[0][1].number, 1.0);
}

TEST(TextTable, BreaksNamesAndAlignsNumbersToTheRight) {
  const Table table{{{"run", {}}, {"points against ddp", {}}, {"nothing", {}}},
                    {{"a", -1.5, {}}, {"longer", 12.25, {}}}};
  EXPECT_EQ(to_text(table, 80),
            "         points\n"
            "        against\n"
            "run         ddp\n"
            "a         -1.50\n"
            "longer    12.25\n");
}

size_t widest(const std::string& text) {
  size_t most = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) most = std::max(most, width_of(line));
  return most;
}

TEST(TextTable, FitsByLeavingOutDetailsFirst) {
  Table table{{{"run", {}},
               {.name = "detail", .detail = true},
               {"first", {}},
               {"second", {}},
               {"third", {}},
               {.name = "more details", .detail = true}},
              {{"a", 1.0, 2.0, 3.0, 4.0, 5.0}}};
  EXPECT_THAT(to_text(table, 40), HasSubstr("third"));
  EXPECT_THAT(to_text(table, 30), Not(HasSubstr("more")));
  EXPECT_THAT(to_text(table, 26), Not(HasSubstr("detail")));
  EXPECT_THAT(to_text(table, 20), Not(HasSubstr("third")));
  EXPECT_THAT(to_text(table, 20), HasSubstr("second"));
  table.rows[0][0] = std::string(300, 'n');
  for (const size_t width : {100U, 60U, 40U}) EXPECT_LE(widest(to_text(table, width)), width);
}

TEST(CleanText, IsOneLineOfValidUtf8) {
  EXPECT_EQ(cleaned("a\x1b[31mb\r\nc\td"), "a[31mb  c d");
  EXPECT_EQ(cleaned("\xff\xc3z\xed\xa0\x80"), "\uFFFD\uFFFDz\uFFFD\uFFFD\uFFFD");  // U+D800 is three wrong bytes
  EXPECT_EQ(cleaned("ä±\u0085\U0001F600\xef\xbf\xbf"), "ä±\U0001F600");
  EXPECT_EQ(shortened("äöüß", 3), "äö…");
  EXPECT_EQ(shortened("äöü", 3), "äöü");
}

TEST(CleanText, IsBrokenAtSpaces) {
  EXPECT_EQ(wrapped("one two three", 7), "one two\nthree");
  EXPECT_EQ(wrapped("incompressible a b", 3), "incompressible\na b");
}

}  // namespace
}  // namespace prunex::report
