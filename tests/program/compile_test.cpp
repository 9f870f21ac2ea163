#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "prunex/program/mode.h"
#include "prunex/program/pt2.h"
#include "tests/program/graphs.h"
#include "tests/program/load_tensors.h"
#include "tests/python.h"
#include "tests/scratch.h"

namespace prunex::program {
namespace {

// A graph that no file ever held: load, decompose, unflatten, export again and compile it with stock PyTorch.
TEST(Pt2, PyTorchLoadsAndCompilesWhatWeBuilt) {
  const tests::Scratch folder;
  Model model{Program(in_mode(small_graph(), Mode::kEval)), small_weights()};
  write_pt2(folder / "program.pt2", model);
  PRUNEX_RUN_PYTHON("tests/program/compile_written.py", folder.path());
  auto expected = load_tensors(folder / "expected.pt");
  EXPECT_TRUE(at::equal(model.program.run({expected["x"]}, model.weights, Mode::kEval)[0], expected["output"]));
}

}  // namespace
}  // namespace prunex::program
