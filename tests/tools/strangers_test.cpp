// What strangers' files hold reaches no terminal as it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/report/run_files.h"
#include "tests/scratch.h"
#include "tests/tools/in_process.h"

namespace prunex::tools {
namespace {

TEST(Strangers, ControlTheTerminalOfNoPlan) {
  const tests::Scratch scratch;
  const std::string run_directory = scratch / "runs/\x1b[2J";
  tests::write_run(run_directory, {});
  tests::write_text(run_directory + "/structure.json", "{");
  const Result planned = run({"plan", "--from", scratch / "runs"});
  EXPECT_EQ(planned.status, 0) << planned.errors;
  EXPECT_THAT(planned.errors, testing::HasSubstr("structure.json: "));
  EXPECT_THAT(planned.errors, testing::Not(testing::HasSubstr("\x1b")));
}

}  // namespace
}  // namespace prunex::tools
