#include "prunex/io/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "tests/scratch.h"

namespace prunex::io {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::ThrowsMessage;

void write(const std::string& path) {
  std::ofstream(path) << "text";
}

TEST(AtomicDirectory, AppearsWhole) {
  const tests::Scratch scratch;
  {
    AtomicDirectory directory(scratch / "a/b/");
    write(directory.path() + "/file");
    EXPECT_FALSE(fs::exists(scratch / "a/b"));
    directory.commit();
  }
  EXPECT_TRUE(fs::exists(scratch / "a/b/file"));
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch / "a"), {}), 1);
}

TEST(AtomicDirectory, LeavesNothingWithoutCommit) {
  const tests::Scratch scratch;
  { write(AtomicDirectory(scratch / "a").path() + "/file"); }
  EXPECT_TRUE(fs::is_empty(scratch.path()));
}

TEST(AtomicDirectory, IsCalledByItsFinalNameInErrors) {
  const tests::Scratch scratch;
  const AtomicDirectory directory(scratch / "a/");
  EXPECT_EQ(directory.by_its_name(directory.path() + "/x and " + directory.path()),
            scratch / "a/x and " + scratch / "a");
  EXPECT_EQ(directory.by_its_name("others"), "others");
}

TEST(AtomicDirectory, ReplacesAnEmptyDirectoryOnly) {
  const tests::Scratch scratch;
  fs::create_directory(scratch / "empty");
  check_new_or_empty(scratch / "empty", "`output`");
  fs::create_directory_symlink(scratch / "empty", scratch / "link");
  {
    AtomicDirectory directory(scratch / "link/");
    write(directory.path() + "/file");
    directory.commit();
  }
  EXPECT_TRUE(fs::is_symlink(scratch / "link"));
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch / "empty"), fs::directory_iterator()), 1);
  EXPECT_TRUE(fs::exists(scratch / "empty/file"));
  fs::create_directory(scratch / "full");
  write(scratch / "full/precious");
  EXPECT_THAT([&] { check_new_or_empty(scratch / "full", "`output`"); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("full: is not empty")));
  EXPECT_THAT([&] { check_new_or_empty(scratch / "full/precious", "`output`"); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("is a file")));
  EXPECT_THROW(AtomicDirectory(scratch / "full").commit(), std::runtime_error);
  EXPECT_TRUE(fs::exists(scratch / "full/precious"));
}

}  // namespace
}  // namespace prunex::io
