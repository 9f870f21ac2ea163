// Texts beside a program in its file; that stock PyTorch reads and writes the same is tested with PyTorch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "prunex/program/pt2.h"
#include "tests/program/graphs.h"
#include "tests/program/pt2_files.h"
#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::program {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

Model small_model() {
  return {Program(small_graph()), small_weights()};
}

TEST(ExtraFiles, AreReadBackByName) {
  const tests::Scratch scratch;
  const std::string path = scratch / "net.pt2";
  write_pt2(path, small_model(), {{"prunex.json", "{\"a\": 1}"}, {"notes.txt", std::string("\0x", 2)}});
  EXPECT_EQ(read_extra_file(path, "prunex.json"), "{\"a\": 1}");
  EXPECT_EQ(read_extra_file(path, "notes.txt"), std::string("\0x", 2));
  EXPECT_EQ(read_extra_file(path, "other.txt"), std::nullopt);
  EXPECT_EQ(read_pt2(path).program.graph().nodes.size(), small_graph().nodes.size());
}

TEST(ExtraFiles, AreAbsentFromAFileThatTorchWroteWithoutThem) {
  EXPECT_EQ(read_extra_file(stored_pt2("net"), "prunex.json"), std::nullopt);
}

TEST(ExtraFiles, LeaveEqualModelsEqualBytes) {
  const tests::Scratch scratch;
  const Model model = small_model();
  for (const char* name : {"a.pt2", "b.pt2"}) write_pt2(scratch / name, model, {{"prunex.json", "{}"}});
  EXPECT_TRUE(tests::text_of(scratch / "a.pt2") == tests::text_of(scratch / "b.pt2"));
}

TEST(ExtraFiles, NameTheFileThatCannotBeRead) {
  const tests::Scratch scratch;
  const std::string path = scratch / "net.pt2";
  tests::write_text(path, "no zip");
  EXPECT_THAT([&] { read_extra_file(path, "prunex.json"); }, ThrowsMessage<std::runtime_error>(HasSubstr(path)));
  write_pt2(path, small_model(), {{"prunex.json", std::string(2 << 20, 'x')}});
  EXPECT_THAT([&] { read_extra_file(path, "prunex.json"); },
              ThrowsMessage<std::runtime_error>(AllOf(HasSubstr(path), HasSubstr("'extra/prunex.json' has 2097152"))));
}

}  // namespace
}  // namespace prunex::program
