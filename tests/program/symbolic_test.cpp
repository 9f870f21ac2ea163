#include "prunex/program/pt2/format.h"

#include <gtest/gtest.h>

namespace prunex::program {
namespace {

constexpr const char* kBatch = "Symbol('s77', positive=True, integer=True)";

std::optional<Extent> parse(std::string text) {
  for (size_t at = 0; (at = text.find("B", at)) != std::string::npos; ++at) text.replace(at, 1, kBatch);
  return parse_extent(text, "s77");
}

TEST(Symbolic, NumbersAndMultiplesOfTheBatchAreExtents) {
  EXPECT_EQ(parse("Integer(12)"), (Extent{12, false}));
  EXPECT_EQ(parse("B"), (Extent{1, true}));
  EXPECT_EQ(parse("Mul(Integer(12), B)"), (Extent{12, true}));
  EXPECT_EQ(parse("Add(B, Mul(Integer(3), B))"), (Extent{4, true}));
  EXPECT_EQ(parse("FloorDiv(Mul(Integer(64), B), Integer(16))"), (Extent{4, true}));
  EXPECT_EQ(parse("Mul(Rational(1, 2), Integer(6), B)"), (Extent{3, true}));
  EXPECT_EQ(parse("FloorDiv(Mul(Integer(24), B), B)"), (Extent{24, false}));
  EXPECT_EQ(parse("Mul(Integer(5), B, Pow(B, Integer(-1)))"), (Extent{5, false}));
}

TEST(Symbolic, OtherSizesAreNot) {
  EXPECT_FALSE(parse("Add(B, Integer(1))"));
  EXPECT_FALSE(parse("FloorDiv(B, Integer(2))"));
  EXPECT_FALSE(parse("Pow(B, Integer(2))"));
  EXPECT_FALSE(parse("Mul(Rational(1, 2), B)"));
  EXPECT_FALSE(parse("Mod(B, Integer(2))"));
  EXPECT_FALSE(parse("Max(Integer(4), B)"));
}

TEST(Symbolic, OtherSymbolsAndBrokenTextAreRefused) {
  for (const auto* text : {"Symbol('u0', integer=True)", "Symbol('s7', positive=True)", "Symbol('s777', integer=True)",
                           "Mul(Integer(2), Symbol('s1'))", "Integer(", "Integer()", "Mul(", "", "Shift(B)", "B B", "-",
                           "Symbol(", "Integer(99999999999999999999)", "Pow(Integer(0), Integer(-1))"}) {
    EXPECT_FALSE(parse(text)) << text;
  }
}

TEST(Symbolic, NameOfASymbol) {
  EXPECT_EQ(symbol_name(kBatch), "s77");
  EXPECT_FALSE(symbol_name("Mul(Integer(2), Symbol('s77', positive=True, integer=True))"));
  EXPECT_FALSE(symbol_name("Symbol('s77"));
  EXPECT_FALSE(symbol_name("Integer(3)"));
}

}  // namespace
}  // namespace prunex::program
