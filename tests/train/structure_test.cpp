#include "prunex/train/product.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::train {
namespace {

Structure example() {
  Structure structure{"resnet8", {1, 3, 32, 32}, {}};
  structure.cut.tensors["w"] = {{3, 6}, {{0, {0, 2}}, {1, {1, 2, 4, 5}}}};
  structure.cut.tensors["count"] = {{}, {}};
  structure.cut.groups = {{"a", 3, {0, 2}, {"w", 0, {}}}, {"b", 3, {1, 2}, {"w", 1, {0, 3, 1, 4, 2, 5}}}};
  return structure;
}

// The form that docs and scripts rely on, written by hand.
TEST(Structure, HasTheDocumentedForm) {
  const auto expected = nlohmann::json::parse(R"({
    "model": "resnet8", "input": [1, 3, 32, 32],
    "tensors": {"count": {"shape": [], "kept": {}}, "w": {"shape": [3, 6], "kept": {"0": [0, 2], "1": [1, 2, 4, 5]}}},
    "groups": [{"name": "a", "size": 3, "kept": [0, 2], "at": {"tensor": "w", "axis": 0}},
               {"name": "b", "size": 3, "kept": [1, 2],
                "at": {"tensor": "w", "axis": 1, "index": [0, 3, 1, 4, 2, 5]}}]})");
  EXPECT_EQ(nlohmann::json::parse(structure_json(example())), expected);
  Structure inexact = example();
  inexact.groups = {.statistics = true};
  const std::string text = structure_json(inexact);
  EXPECT_EQ(nlohmann::json::parse(text).at("statistics"), true);
  EXPECT_TRUE(parse_structure(text).groups.statistics);
  EXPECT_FALSE(parse_structure(text).groups.heads);
}

TEST(Structure, FilesGiveBackTheCut) {
  const tests::Scratch folder;
  write_structure(folder.path(), example());
  std::ifstream file(folder / "structure.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Structure read = parse_structure(text);
  EXPECT_EQ(read.cut, example().cut);
  EXPECT_EQ(read.model, "resnet8");
  EXPECT_EQ(read.input, example().input);
}

TEST(Structure, OtherTextIsRefused) {
  for (const char* text : {"", "{}", R"({"model": "m", "input": [1], "tensors": {"w": {}}, "groups": []})",
                           R"({"model": "m", "input": [1], "tensors": {"w": {"shape": [2], "kept": {"x": [0]}}},
                               "groups": []})"}) {
    EXPECT_THROW(parse_structure(text), std::invalid_argument) << text;
  }
  const auto refusal = [](const std::string& text) { return tests::message([&] { parse_structure(text); }); };
  EXPECT_EQ(refusal(std::string(200'000, '[')),
            "no structure of a pruned network: nested deeper than 100 levels (line 1, column 101)");
  for (const char* kept : {"[0, 2]", "[-1]", "[1, 0]", "[0, 0]"}) {
    EXPECT_EQ(refusal(fmt::format(R"({{"model": "m", "input": [1], "groups": [], "tensors":
                                      {{"w": {{"shape": [2], "kept": {{"0": {}}}}}}}}})",
                                  kept)),
              "no structure of a pruned network: wanted ascending positions below 2");
  }
}

}  // namespace
}  // namespace prunex::train
