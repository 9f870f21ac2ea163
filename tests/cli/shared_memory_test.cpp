// Ranks of a node where there is no room for POSIX shared memory, and where they do not see each other's processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "tests/cli/command.h"
#include "tests/listening.h"
#include "tests/scratch.h"

namespace prunex::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

std::vector<std::string> small_run(const std::vector<std::string>& more) {
  auto words = prunex({"train", "--samples", "64", "--model", "resnet8", "--batch-size", "4", "--exchanges", "2",
                       "--local-steps", "1", "--eval-every", "0", "--run-dir", "run"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// The same command in namespaces of its own, after what a shell prepares there; needs root.
std::vector<std::string> isolated(const std::string& flags, const std::string& prepare,
                                  const std::vector<std::string>& words) {
  std::vector<std::string> all{"/usr/bin/env", "bash", "-c",
                               "exec unshare " + flags + " bash -c '" + prepare + " && exec \"$@\"' bash \"$@\"",
                               "bash"};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

bool may_isolate() {
  return std::getenv("PRUNEX_NO_SKIP") != nullptr ||
         run_program(".", isolated("-m", "true", {"/bin/true"})).status == 0;
}

TEST(SharedMemory, NeedsNoFileSystem) {
  if (!may_isolate()) GTEST_SKIP() << "no permission to mount in a namespace of its own";
  const tests::Scratch scratch;
  const std::string no_room = "mount -t tmpfs -o size=1m,mode=0500 tmpfs /dev/shm";
  const Result result =
      run_program(scratch.path(), isolated("-m", no_room, small_run({"--nodes", "2", "--ranks-per-node", "2"})));
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.errors, Not(HasSubstr("no shared memory")));
}

TEST(Ranks, AreNotStartedWithoutProcWhichIsSaid) {
  if (!may_isolate()) GTEST_SKIP() << "no permission to mount in a namespace of its own";
  const tests::Scratch scratch;
  const Result result = run_program(scratch.path(), isolated("-m", "umount -l /proc", small_run({"--nodes", "2"})));
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.errors, HasSubstr("prunex: cannot start /proc/self/exe: No such file or directory\n"));
}

// As in containers, one per rank, that share a network.
TEST(SharedMemory, IsMissedOnceWhereRanksDoNotSeeEachOther) {
  if (!may_isolate()) GTEST_SKIP() << "no permission to mount in a namespace of its own";
  const tests::Scratch scratch;
  std::vector<std::unique_ptr<Running>> ranks;
  const std::string port = std::to_string(tests::free_port(20000));
  for (const std::string rank : {"0", "1"}) {
    std::vector<std::string> words{"/usr/bin/env",
                                   "OMPI_COMM_WORLD_SIZE=2",
                                   "OMPI_COMM_WORLD_RANK=" + rank,
                                   "OMPI_COMM_WORLD_LOCAL_RANK=" + rank,
                                   "OMPI_COMM_WORLD_LOCAL_SIZE=2",
                                   "MASTER_ADDR=127.0.0.1",
                                   "MASTER_PORT=" + port};
    const auto command = isolated("-p -f --mount-proc", "true", small_run({"--ranks-per-node", "2"}));
    words.insert(words.end(), command.begin(), command.end());
    ranks.push_back(std::make_unique<Running>(scratch.path(), words));
  }
  std::string errors;
  for (auto& rank : ranks) {
    const auto result = rank->finish();
    EXPECT_EQ(result.status, 0) << result.errors;
    errors += result.errors;
  }
  const std::string line = "prunex: no shared memory inside a node (shared memory: /proc/";
  const auto first = errors.find(line);
  ASSERT_NE(first, std::string::npos) << errors;
  EXPECT_EQ(errors.find("no shared memory", first + line.size()), std::string::npos) << errors;
}

}  // namespace
}  // namespace prunex::cli
