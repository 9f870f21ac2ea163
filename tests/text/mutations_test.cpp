// Damaged records and configurations: each is read, or refused in one line that says where.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "prunex/text/json.h"
#include "prunex/text/settings.h"
#include "tests/mutations.h"
#include "tests/texts.h"

namespace prunex::text {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using tests::message;

constexpr const char* kSettings = R"(# a run
dataset = "synthetic"
lr = 0.1
data-dir = 'C:\data'
note = """two
lines"""
ranks-per-node = [2, 1]
seed = 7
as-printed = false
)";

constexpr const char* kRecord =
    R"({"exchange": 3, "loss": 1.5e-2, "frozen": true, "residuals": {"by_tensor": {"w": [1, -2, null]}}, "name": "a\u00e4\n"})";

std::vector<std::string> damaged(const std::string& text) {
  return tests::damaged(text, 500, 50, 500);
}

TEST(Damaged, ConfigurationsAreReadOrRefusedByFileAndLine) {
  for (const auto& text : damaged(kSettings)) {
    const auto said = message([&] { read_settings(text, "f.toml"); });
    EXPECT_THAT(said, AllOf(AnyOf("no exception", StartsWith("f.toml:")), Not(HasSubstr("\n")))) << text;
  }
}

TEST(Damaged, ConfigurationsThatAreReadAreWrittenAgainAsTheyWere) {
  for (const auto& text : damaged(kSettings)) {
    std::vector<Setting> settings;
    if (message([&] { settings = read_settings(text, "f.toml"); }) != "no exception") continue;
    for (const auto& setting : settings) EXPECT_EQ(word_of(toml_of(setting.value)), setting.value) << text;
  }
}

TEST(Damaged, RecordsAreReadOrRefusedByLineAndColumn) {
  for (const auto& text : damaged(kRecord)) {
    const auto said = message([&] { (void)parse_json(text); });
    EXPECT_THAT(said, AllOf(AnyOf("no exception", StartsWith("not valid JSON")), Not(HasSubstr("\n")))) << text;
    EXPECT_EQ(is_json(text), said == "no exception");
  }
}

}  // namespace
}  // namespace prunex::text
