#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "prunex/program/builder.h"
#include "prunex/program/pt2.h"
#include "tests/python.h"
#include "tests/pytorch/load_tensors.h"
#include "tests/scratch.h"

namespace prunex::program {
namespace {

Model build() {
  Builder net(1);
  const auto x = net.relu(net.batch_norm("bn", net.conv2d("conv", net.input("x", {2, 5, 5}), {.out = 4, .kernel = 3})));
  return std::move(net).finish(net.linear("fc", net.flatten(net.max_pool2d(x, {})), {.out = 3}));
}

// A graph that PyTorch never saw: load, decompose, unflatten, export again and compile it with stock PyTorch.
TEST(BuiltPrograms, AreLoadedAndCompiledByPyTorch) {
  const tests::Scratch folder;
  auto model = build();
  write_pt2(folder / "program.pt2", model);
  PRUNEX_RUN_PYTHON("tests/pytorch/compile_written.py", folder.path());
  auto expected = tests::load_tensors(folder / "expected.pt");
  EXPECT_TRUE(at::equal(model.program.run({expected["x"]}, model.weights, Mode::kEval)[0], expected["output"]));
}

TEST(ReadPrograms, AreLoadedAndUnflattenedByPyTorchWhenTheyAreWrittenAgain) {
  const tests::Scratch folder;
  const std::string region = folder / "region.pt2", three = folder / "three.pt2";
  PRUNEX_RUN_PYTHON("tests/pytorch/unflatten_written.py", folder.path());
  for (const std::string& path : {region, three}) write_pt2(path, read_pt2(path));
  PRUNEX_RUN_PYTHON("tests/pytorch/unflatten_written.py", region, three);
}

}  // namespace
}  // namespace prunex::program
