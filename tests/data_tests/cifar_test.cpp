// CIFAR's binary layout: files written here byte by byte as its authors describe it.
#include "prunex/data/load.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <stdexcept>

#include "prunex/io/files.h"
#include "tests/scratch.h"

namespace prunex::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;
using tests::Scratch;

// Image i: labels, then 1024 bytes each of red i + 1, green i + 2, blue i + 3; the first byte of red is 200.
std::string record(const std::string& labels, int64_t i) {
  std::string bytes = labels;
  for (int64_t plane = 1; plane <= 3; ++plane) bytes += std::string(1024, static_cast<char>(i + plane));
  bytes[labels.size()] = static_cast<char>(200);
  return bytes;
}

void write_cifar10(const std::string& folder) {
  std::filesystem::create_directories(folder);
  for (int64_t file = 0; file < 5; ++file) {
    std::string bytes;
    for (int64_t i = 2 * file; i < 2 * file + 2; ++i) bytes += record(std::string(1, static_cast<char>(i)), 10 * i);
    io::write_file_atomically(folder + "/data_batch_" + std::to_string(file + 1) + ".bin", bytes);
  }
  io::write_file_atomically(folder + "/test_batch.bin", record(std::string(1, '\x07'), 50));
}

void write_cifar100(const std::string& folder) {
  std::filesystem::create_directories(folder);
  io::write_file_atomically(folder + "/train.bin", record("\x13\x63", 0) + record(std::string("\x02\x00", 2), 5));
  io::write_file_atomically(folder + "/test.bin", record("\x04\x2a", 9));
}

void expect_cifar10(const Datasets& data) {
  EXPECT_TRUE(at::equal(data.train.labels, at::arange(10, at::kLong)));
  EXPECT_EQ(data.train.classes, 10);
  EXPECT_EQ(data.train.images.sizes(), (std::vector<int64_t>{10, 3, 32, 32}));
  EXPECT_TRUE(data.train.images.is_contiguous(at::MemoryFormat::ChannelsLast));
  at::Tensor third = data.train.images[3];
  EXPECT_EQ(third[0][0][0].item<int64_t>(), 200);
  EXPECT_EQ(third[0][31][31].item<int64_t>(), 31);
  EXPECT_TRUE(third[1].eq(32).all().item<bool>());
  EXPECT_TRUE(third[2].eq(33).all().item<bool>());
  EXPECT_EQ(data.test.labels.item<int64_t>(), 7);
  EXPECT_EQ(data.test.mean, data.train.mean);
}

TEST(Cifar, ReadsTheTenClassesFromTheFolderOrItsParent) {
  Scratch scratch;
  write_cifar10(scratch / "cifar-10-batches-bin");
  expect_cifar10(read_cifar10(scratch.path()));
  expect_cifar10(read_cifar10(scratch / "cifar-10-batches-bin"));
}

TEST(Cifar, NamesItsClassesByTheFileBesideThem) {
  Scratch scratch;
  write_cifar10(scratch / "ten");
  write_cifar100(scratch / "hundred");
  EXPECT_TRUE(read_cifar10(scratch / "ten").train.class_names.empty());
  std::string ten, hundred;
  for (int64_t i = 0; i < 10; ++i) ten += "kind " + std::to_string(i) + "\r\n";
  for (int64_t i = 0; i < 100; ++i) hundred += "fine_" + std::to_string(i) + "\n";
  io::write_file_atomically(scratch / "ten/batches.meta.txt", ten + "\n");
  io::write_file_atomically(scratch / "hundred/fine_label_names.txt", hundred);
  EXPECT_EQ(read_cifar10(scratch / "ten").test.class_names[9], "kind 9");
  EXPECT_EQ(read_cifar100(scratch / "hundred").train.class_names[99], "fine_99");
  io::write_file_atomically(scratch / "ten/batches.meta.txt", "cat\ndog\n");
  EXPECT_THAT([&] { read_cifar10(scratch / "ten"); },
              ThrowsMessage<std::runtime_error>(AllOf(HasSubstr("batches.meta.txt: 2 names"), HasSubstr("10 are"))));
}

TEST(Cifar, ReadsTheHundredFineClasses) {
  Scratch scratch;
  write_cifar100(scratch / "cifar-100-binary");
  for (auto& folder : {scratch.path(), scratch / "cifar-100-binary"}) {
    Datasets data = read_cifar100(folder);
    EXPECT_TRUE(at::equal(data.train.labels, at::tensor({99, 0}, at::kLong)));
    EXPECT_EQ(data.train.classes, 100);
    EXPECT_EQ(data.train.images[1][2][5][5].item<int64_t>(), 8);
    EXPECT_EQ(data.test.labels.item<int64_t>(), 42);
  }
}

TEST(Cifar, NamesBothPlacesWhereItLooked) {
  Scratch scratch;
  EXPECT_THAT([&] { read_cifar10(scratch.path()); },
              ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("`data_dir` " + scratch.path()),
                                                         HasSubstr(scratch / "cifar-10-batches-bin"),
                                                         HasSubstr(" nor in " + scratch.path()))));
  write_cifar10(scratch.path());
  EXPECT_THAT([&] { read_cifar100(scratch.path()); },
              ThrowsMessage<std::invalid_argument>(HasSubstr(scratch / "cifar-100-binary")));
}

TEST(Cifar, RefusesTruncatedEmptyAndMissingFiles) {
  Scratch scratch;
  write_cifar10(scratch.path());
  std::string path = scratch / "data_batch_2.bin";
  auto refused = [&](const std::string& reason) {
    EXPECT_THAT([&] { read_cifar10(scratch.path()); },
                ThrowsMessage<std::runtime_error>(AllOf(HasSubstr(path), HasSubstr(reason), Not(HasSubstr("\n")))));
  };
  std::filesystem::resize_file(path, 6000);
  refused("6000 bytes, a multiple of 3073 is wanted");
  std::filesystem::resize_file(path, 0);
  refused("0 bytes, a multiple of 3073 is wanted");
  std::filesystem::remove(path);
  refused("No such file");
  std::filesystem::create_directory(path);
  refused("directory");
  write_cifar10(scratch / "named");
  path = scratch / "named/batches.meta.txt";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT([&] { read_cifar10(scratch / "named"); },
              ThrowsMessage<std::runtime_error>(path + ": is not a regular file"));
}

/// Permissions are nothing to root, whom the limit holds up as well.
TEST(Cifar, SaysWhyAFileCannotBeOpened) {
  Scratch scratch;
  write_cifar10(scratch.path());
  rlimit before = {};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none = {0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  std::string refused;
  try {
    read_cifar10(scratch.path());
  } catch (const std::runtime_error& error) {
    refused = error.what();
  }
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(refused, "cannot read " + scratch / "data_batch_1.bin" + ": Too many open files");
}

TEST(Cifar, RefusesALabelOutOfRange) {
  Scratch scratch;
  write_cifar10(scratch.path());
  io::write_file_atomically(scratch / "data_batch_5.bin", record("\x09", 0) + record("\x0a", 0));
  EXPECT_THAT([&] { read_cifar10(scratch.path()); },
              ThrowsMessage<std::runtime_error>(
                  AllOf(HasSubstr("data_batch_5.bin"), HasSubstr("image 1 has label 10, 0 … 9 is wanted"))));
}

}  // namespace
}  // namespace prunex::data
