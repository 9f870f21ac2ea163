// Atomic files, JSON lines and run directories against the file system.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>

#include "prunex/io/files.h"
#include "tests/full_disk.h"
#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::io {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;
using tests::FullDisk;
using tests::Scratch;
using tests::text_of;

int64_t entries(const fs::path& folder) {
  return std::distance(fs::directory_iterator(folder), {});
}

TEST(AtomicFile, ReplacesAFileAndLeavesNothingElse) {
  Scratch scratch;
  write_file_atomically(scratch / "a", "old");
  write_file_atomically(scratch / "a", std::string("new\0bytes", 9));
  EXPECT_EQ(text_of(scratch / "a"), std::string("new\0bytes", 9));
  EXPECT_EQ(entries(scratch.path()), 1);
}

TEST(AtomicFile, IsNotSeenBeforeCommit) {
  Scratch scratch;
  {
    AtomicFile file(scratch / "a");
    file.append("half");
    EXPECT_FALSE(fs::exists(scratch / "a"));
  }
  EXPECT_EQ(entries(scratch.path()), 0);
}

TEST(AtomicFile, HasThePermissionsOfAnOrdinaryFile) {
  Scratch scratch;
  mode_t mask = ::umask(0);
  ::umask(mask);
  write_file_atomically(scratch / "a", "x");
  EXPECT_EQ(static_cast<mode_t>(fs::status(scratch / "a").permissions()), 0666 & ~mask);
}

TEST(AtomicFile, LeavesTheFileThatItReplacesItsPermissions) {
  Scratch scratch;
  for (const auto mode : {fs::perms(0600), fs::perms(0664)}) {
    write_file_atomically(scratch / "a", "x");
    fs::permissions(scratch / "a", mode);
    write_file_atomically(scratch / "a", "y");
    EXPECT_EQ(fs::status(scratch / "a").permissions(), mode);
  }
  write_file_atomically(scratch / "a", "secret", 0600);  // asked for fewer
  EXPECT_EQ(fs::status(scratch / "a").permissions(), fs::perms(0600));
}

/// As behind `>> log`: opened anew, the file would lose what stands in it.
TEST(AtomicFile, ADescriptorIsWrittenFromWhereItIs) {
  Scratch scratch;
  const int log = ::open(std::string(scratch / "log").c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_EQ(::write(log, "old ", 4), 4);
  write_file_atomically("/dev/fd/" + std::to_string(log), "new ");
  ASSERT_EQ(::write(log, "more", 4), 4);
  ::close(log);
  EXPECT_EQ(text_of(scratch / "log"), "old new more");
  EXPECT_THAT([&] { write_file_atomically("/dev/fd/" + std::to_string(log), "x"); },
              ThrowsMessage<std::runtime_error>(HasSubstr("cannot write /dev/fd/")));
}

TEST(AtomicFile, ALinkStaysALink) {
  Scratch scratch;
  fs::create_symlink("file", scratch / "link");
  write_file_atomically(scratch / "link", "x");  // to nothing yet
  EXPECT_TRUE(fs::is_symlink(scratch / "link"));
  EXPECT_EQ(text_of(scratch / "file"), "x");
  fs::create_directory(scratch / "folder");
  fs::create_symlink("../link", scratch / "folder/second");
  write_file_atomically(scratch / "folder/second", "y");
  EXPECT_EQ(text_of(scratch / "file"), "y");
  EXPECT_EQ(entries(scratch.path()), 3);
}

TEST(AtomicFile, ADeviceOrAPipeIsWrittenAsItIs) {
  Scratch scratch;
  ASSERT_EQ(::mkfifo(std::string(scratch / "pipe").c_str(), 0600), 0);
  const int reader = ::open(std::string(scratch / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
  write_file_atomically(scratch / "pipe", "through");
  char buffer[16] = {};
  EXPECT_EQ(::read(reader, buffer, sizeof(buffer)), 7);
  EXPECT_STREQ(buffer, "through");
  ::close(reader);
  EXPECT_TRUE(fs::is_fifo(scratch / "pipe"));
  EXPECT_EQ(entries(scratch.path()), 1);
  fs::create_symlink("/dev/full", scratch / "full");
  EXPECT_THAT([&] { write_file_atomically(scratch / "full", "x"); },
              ThrowsMessage<std::runtime_error>(HasSubstr("No space left")));
}

TEST(AtomicFile, AFullDiskLeavesTheOldFileAndNamesIt) {
  Scratch scratch;
  write_file_atomically(scratch / "a", "old");
  {
    FullDisk disk(1000);
    EXPECT_THAT([&] { write_file_atomically(scratch / "a", std::string(5000, 'x')); },
                ThrowsMessage<std::runtime_error>(AllOf(HasSubstr(scratch / "a"), Not(HasSubstr("\n")))));
  }
  EXPECT_EQ(text_of(scratch / "a"), "old");
  EXPECT_EQ(entries(scratch.path()), 1);
}

TEST(AtomicFile, NamesAFolderThatIsNotThere) {
  Scratch scratch;
  EXPECT_THAT([&] { write_file_atomically(scratch / "no/a", "x"); },
              ThrowsMessage<std::runtime_error>(AllOf(HasSubstr(scratch / "no/a"), HasSubstr("No such file"))));
}

// As ranks in containers of their own do, which have the same process and thread ids.
TEST(AtomicFile, OfOnePathMayBeUnderConstructionTwice) {
  Scratch scratch;
  AtomicFile first(scratch / "a"), second(scratch / "a");
  first.append("first");
  second.append("second");
  first.commit();
  EXPECT_EQ(text_of(scratch / "a"), "first");
  second.commit();
  EXPECT_EQ(text_of(scratch / "a"), "second");
  EXPECT_EQ(entries(scratch.path()), 1);
}

TEST(AtomicFile, OfAKilledProcessIsRemovedAndNothingElseIs) {
  Scratch scratch;
  for (const char* name : {"a.tmp", "a.1-2.tmp", "b"}) write_file_atomically(scratch / name, "mine");
  const pid_t pid = ::fork();
  if (pid == 0) {
    AtomicFile file(scratch / "c");
    ::_exit(0);
  }
  ::waitpid(pid, nullptr, 0);
  EXPECT_EQ(entries(scratch.path()), 4);
  remove_temporaries(scratch.path());
  EXPECT_EQ(entries(scratch.path()), 3);
  for (const char* name : {"a.tmp", "a.1-2.tmp", "b"}) EXPECT_EQ(text_of(scratch / name), "mine");
  EXPECT_NO_THROW(remove_temporaries(scratch / "nowhere"));
}

TEST(GrowingFile, HasEachRecordWhenAppendReturns) {
  Scratch scratch;
  GrowingFile lines(scratch / "m.jsonl");
  lines.append("{\"exchange\":1}\n");
  EXPECT_EQ(text_of(scratch / "m.jsonl"), "{\"exchange\":1}\n");
  lines.append("{\"exchange\":2}\n");
  EXPECT_EQ(text_of(scratch / "m.jsonl"), "{\"exchange\":1}\n{\"exchange\":2}\n");
}

TEST(GrowingFile, ContinuesAnExistingFile) {
  Scratch scratch;
  GrowingFile(scratch / "m.jsonl").append("1\n");
  GrowingFile(scratch / "m.jsonl").append("2\n");
  EXPECT_EQ(text_of(scratch / "m.jsonl"), "1\n2\n");
}

TEST(GrowingFile, OnAFullDiskIsNamed) {
  Scratch scratch;
  GrowingFile lines(scratch / "m.jsonl");
  FullDisk disk(10);
  EXPECT_THAT([&] { lines.append(std::string(100, '1')); },
              ThrowsMessage<std::runtime_error>(HasSubstr(scratch / "m.jsonl")));
}

TEST(GrowingFile, KeepsRecordsWithoutRoomWaitingInOrder) {
  Scratch scratch;
  GrowingFile lines(scratch / "m.jsonl");
  lines.append("1\n");
  {
    FullDisk disk(5);
    EXPECT_THROW(lines.append("22222\n"), std::runtime_error);
    EXPECT_THROW(lines.append("3\n"), std::runtime_error);
    EXPECT_THROW(lines.flush(), std::runtime_error);
    EXPECT_EQ(text_of(scratch / "m.jsonl"), "1\n");  // no half of a record
  }
  lines.flush();
  EXPECT_EQ(text_of(scratch / "m.jsonl"), "1\n22222\n3\n");
}

TEST(RunDirectory, TakesTheNextFreeNumber) {
  Scratch scratch;
  RunName name{"synthetic", "resnet8", "hsadmm"};
  EXPECT_EQ(create_next_run_directory(scratch / "runs", name), scratch / "runs/synthetic-resnet8-hsadmm-1");
  EXPECT_EQ(create_next_run_directory(scratch / "runs", name), scratch / "runs/synthetic-resnet8-hsadmm-2");
  EXPECT_TRUE(fs::is_directory(scratch / "runs/synthetic-resnet8-hsadmm-2"));
}

TEST(RunDirectory, IsMadeBesideWhatHasItsName) {
  Scratch scratch;
  write_file_atomically(scratch / "run", "x");
  EXPECT_EQ(create_directory_beside(scratch / "run/"), scratch / "run-2");
  EXPECT_EQ(create_directory_beside(scratch / "run"), scratch / "run-3");
  EXPECT_EQ(create_directory_beside(scratch / "runs/a"), scratch / "runs/a");
  EXPECT_TRUE(fs::is_directory(scratch / "runs/a"));
}

TEST(RunDirectory, IsCalledAfterTheFileOfAModelOrDataSet) {
  Scratch scratch;
  RunName name{"/my/cats.safetensors", "nets/net.v2.pt2", "ddp"};
  EXPECT_EQ(create_next_run_directory(scratch.path(), name), scratch / "cats-net.v2-ddp-1");
  name.dataset = "my/photos/";
  EXPECT_EQ(create_next_run_directory(scratch.path(), name), scratch / "photos-net.v2-ddp-1");
}

TEST(RunDirectory, IsCalledWhatShellsLeaveAsItIs) {
  Scratch scratch;
  RunName name{"shards/train-{0000..0099}.tar", "my net's.pt2", "ddp"};
  EXPECT_EQ(create_next_run_directory(scratch.path(), name), scratch / "train-_0000..0099_-my_net_s-ddp-1");
  name.dataset = ".";
  const std::string here = fs::current_path().stem();
  EXPECT_EQ(create_next_run_directory(scratch.path(), name), scratch / (here + "-my_net_s-ddp-1"));
}

TEST(RunDirectory, AcceptsANewOrAnEmptyFolder) {
  Scratch scratch;
  create_run_directory(scratch / "a/b");
  EXPECT_TRUE(fs::is_directory(scratch / "a/b"));
  EXPECT_NO_THROW(create_run_directory(scratch / "a/b"));
  EXPECT_NO_THROW(create_run_directory(scratch / "a/c/"));
  AtomicFile leftover(scratch / "a/b/config.toml");  // of a run that was killed at its start
  EXPECT_NO_THROW(create_run_directory(scratch / "a/b"));
}

TEST(RunDirectory, RefusesAFolderThatIsNotEmptyAndAFile) {
  Scratch scratch;
  write_file_atomically(scratch / "file", "x");
  EXPECT_THAT(
      [&] { create_run_directory(scratch.path()); },
      ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("`run_dir` " + scratch.path()), HasSubstr("empty"))));
  EXPECT_THAT([&] { create_run_directory(scratch / "file"); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("is a file")));
}

TEST(RunDirectory, NamesAPlaceWhereItCannotBe) {
  Scratch scratch;
  write_file_atomically(scratch / "file", "x");
  EXPECT_THAT([&] { create_run_directory(scratch / "file/run"); },
              ThrowsMessage<std::runtime_error>(HasSubstr(scratch / "file/run")));
}

}  // namespace
}  // namespace prunex::io
