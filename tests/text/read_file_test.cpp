#include "prunex/text/read_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::text {
namespace {

std::string refused_file(const std::string& path) {
  return tests::message([&] { read_file(path, 10); });
}

TEST(ReadFile, ReadsAllOfAFile) {
  const tests::Scratch scratch;
  std::ofstream(scratch / "whole") << "0123\n56789";
  EXPECT_EQ(read_file(scratch / "whole", 10), "0123\n56789");
  std::ofstream(scratch / "empty");
  EXPECT_EQ(read_file(scratch / "empty", 10), "");
}

TEST(ReadFile, ReadsAPipeThatAShellOpened) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], "text", 4), 4);
  close(ends[1]);
  EXPECT_EQ(read_file("/proc/self/fd/" + std::to_string(ends[0]), 10), "text");
  close(ends[0]);
}

TEST(ReadFile, SaysWhyAFileCannotBeOpened) {
  const tests::Scratch scratch;
  std::ofstream(scratch / "file") << "text";
  rlimit before = {};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none = {0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::string refused = refused_file(scratch / "file");
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(refused, "cannot be read: Too many open files");
}

TEST(ReadFile, WaitsForNothingAndReadsNoMoreThanItMay) {
  const tests::Scratch scratch;
  ASSERT_EQ(mkfifo((scratch / "pipe").c_str(), 0600), 0);
  std::ofstream(scratch / "long") << "01234567890";
  std::filesystem::create_symlink("/dev/zero", scratch / "zeros");
  EXPECT_EQ(refused_file(scratch / "pipe"), "is not a regular file");
  EXPECT_EQ(refused_file("/dev/zero"), "is not a regular file");
  EXPECT_EQ(refused_file(scratch / "long"), "got more than 10 bytes");
  EXPECT_EQ(refused_file(scratch / "zeros"), "got more than 10 bytes");
  EXPECT_EQ(refused_file(scratch.path()), "is a directory, wanted a file");
  EXPECT_EQ(refused_file("/proc/self/mem"), "cannot be read to its end");  // nothing is at its begin
  EXPECT_EQ(refused_file(scratch / "none"), "cannot be read: No such file or directory");
}

}  // namespace
}  // namespace prunex::text
