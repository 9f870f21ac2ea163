// examples/export_torchvision.py: what it writes is a network to prune, and what it refuses takes one line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "prunex/channels/analysis.h"
#include "prunex/program/macs.h"
#include "prunex/program/pt2.h"
#include "tests/python.h"
#include "tests/scratch.h"

namespace prunex::channels {
namespace {

constexpr const char* kScript = "examples/export_torchvision.py";

// torchvision documents 1,235,496 parameters for 1000 classes; each class has a 1x1 filter of 512 channels and a bias.
// The stem, 8 modules of three convolutions and the classifier, whose output is the logits, are a group each.
TEST(ExportTorchvision, WritesNetworksToPrune) {
  const tests::Scratch folder;
  PRUNEX_RUN_PYTHON(kScript, "squeezenet1_1", "--classes", "7", "--input", "1x3x48x48", "--output", folder / "net.pt2");
  const auto model = program::read_pt2(folder / "net.pt2");
  EXPECT_EQ(program::parameter_count(model.weights), 1235496 - 993 * 513);
  const auto groups = Analysis(model.program.graph()).groups();
  EXPECT_EQ(std::count_if(groups.begin(), groups.end(), [](const auto& group) { return group.prunable; }), 25);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1) << "something was left behind";
}

TEST(ExportTorchvision, RefusesInOneLine) {
  const tests::Scratch folder;
  const std::vector<std::pair<std::vector<std::string>, std::string>> refusals{
      {{"resnet19"}, "got resnet19"},
      {{"resnet18", "--input", "32x32"}, "got 32x32"},
      {{"resnet18", "--weights", "BEST"}, "got BEST"},
      {{"alexnet", "--input", "1x3x8x8", "--output", folder / "net.pt2"}, "alexnet cannot be exported"}};
  for (const auto& [arguments, message] : refusals) {
    const auto result = tests::run_python(kScript, arguments);
    if (result.missing && !std::getenv("PRUNEX_NO_SKIP")) GTEST_SKIP() << result.output;
    EXPECT_EQ(result.status, 2) << message;
    EXPECT_THAT(result.output, testing::HasSubstr(message));
    EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1) << result.output;
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace prunex::channels
