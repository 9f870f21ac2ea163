// A machine, such as a container, whose /dev/shm is too small.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "command.h"
#include "tests/scratch.h"

namespace prunex::cli {
namespace {

using testing::HasSubstr;

/// Runs a command where /dev/shm holds 1 MB; needs root.
Result run_with_small_memory(const std::string& directory, const std::vector<std::string>& words) {
  std::vector<std::string> all{
      "/usr/bin/env", "unshare", "-m", "bash", "-c", "mount -t tmpfs -o size=1m tmpfs /dev/shm && exec \"$@\"", "bash"};
  all.insert(all.end(), words.begin(), words.end());
  return run_program(directory, all);
}

TEST(SmallSharedMemory, IsSaidOnceAndRanksUseLoopback) {
  const tests::Scratch scratch;
  if (std::getenv("PRUNEX_NO_SKIP") == nullptr && run_with_small_memory(".", {"/bin/true"}).status != 0) {
    GTEST_SKIP() << "no permission to mount in a namespace of its own";
  }
  const Result result = run_with_small_memory(
      scratch.path(), prunex({"train", "--nodes", "2", "--ranks-per-node", "2", "--samples", "64", "--model", "resnet8",
                              "--batch-size", "4", "--exchanges", "2", "--local-steps", "1", "--eval-every", "0"}));
  EXPECT_EQ(result.status, 0) << result.errors;
  const std::string line = "prunex: no shared memory inside the nodes (shared memory: no room: ";
  const auto first = result.errors.find(line);
  ASSERT_NE(first, std::string::npos) << result.errors;
  EXPECT_EQ(result.errors.find("no shared memory", first + line.size()), std::string::npos) << result.errors;
}

}  // namespace
}  // namespace prunex::cli
