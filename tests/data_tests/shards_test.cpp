// Tar shards: what lies where, their indices, what is damaged.
#include "prunex/data/shards.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "prunex/data/image_stream.h"
#include "prunex/data/load.h"
#include "prunex/data/loader.h"
#include "prunex/data/tar.h"
#include "tests/data_tests/encoded.h"
#include "tests/scratch.h"

namespace prunex::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::string image(int seed) {
  return jpeg_of(waves(20, 24, 3, seed), 20, 24);
}

class ShardFiles : public testing::Test {
 protected:
  ShardFiles() {
    for (int shard = 0; shard < 3; ++shard) {
      std::string tar;
      for (int i = 0; i < 4; ++i) {
        const std::string key = fmt::format("{}/sample{}", shard, i);
        if (i == 2) tar += tar_member(key + ".json", "{}");
        tar += tar_member(key + ".jpg", image(4 * shard + i)) +
               tar_member(key + ".cls", std::to_string((shard + i) % 3) + "\n");
      }
      write_tar(fmt::format("s-{:02}.tar", shard), tar);
    }
  }
  void write(const std::string& name, const std::string& bytes) {
    std::ofstream(scratch_ / name, std::ios::binary) << bytes;
  }
  void write_tar(const std::string& name, const std::string& members) {
    write(name, members + std::string(1024, '\0'));
  }
  /// With the time of its shard, as indices have it.
  void write_index(const std::string& shard, const std::string& text) {
    write(shard + ".index", text);
    std::filesystem::last_write_time(scratch_ / (shard + ".index"), std::filesystem::last_write_time(scratch_ / shard));
  }
  std::string pattern() const { return scratch_ / "s-{00..02}.tar"; }
  void refused(const std::string& name, const std::string& reason) {
    EXPECT_THAT([&] { list_shards(scratch_ / name, "`dataset`"); },
                ThrowsMessage<std::invalid_argument>(
                    testing::AllOf(HasSubstr("`dataset`: " + (scratch_ / name)), HasSubstr(reason))));
  }

  const tests::Scratch scratch_;
};

TEST(Braces, AreWrittenOut) {
  EXPECT_THAT(expand_braces("a.tar", ""), ElementsAre("a.tar"));
  EXPECT_THAT(expand_braces("s-{08..11}.tar", ""), ElementsAre("s-08.tar", "s-09.tar", "s-10.tar", "s-11.tar"));
  EXPECT_THAT(expand_braces("{a,b}/{1..2}.tar", ""), ElementsAre("a/1.tar", "a/2.tar", "b/1.tar", "b/2.tar"));
  EXPECT_THAT(expand_braces("train{,-extra}.tar", ""), ElementsAre("train.tar", "train-extra.tar"));
  EXPECT_THAT(expand_braces("{a,,b}", ""), ElementsAre("a", "", "b"));
  EXPECT_THAT(expand_braces("{08..100}", ""), testing::AllOf(testing::SizeIs(93), testing::Contains("008")));
  EXPECT_THAT(expand_braces("{9..10}", ""), ElementsAre("9", "10"));
  for (const char* wrong :
       {"{}.tar", "{1..}.tar", "{3..1}.tar", "{0..99999999999}.tar", "{a.tar", "{0..9999}{0..9999}.tar", "{x}.tar"}) {
    EXPECT_THAT([&] { expand_braces(wrong, "`test`"); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("`test`: got ")))
        << wrong;
  }
}

/// As macOS' tar writes them where files have more than bytes: the one before what it is of.
TEST_F(ShardFiles, MayHaveMembersWithoutAKeyAmongThoseOfASample) {
  for (const std::string folder : {"", "train/"}) {
    write_tar("mac.tar", tar_member(folder + "._0000.cls", "finder") + tar_member(folder + "0000.cls", "1") +
                             tar_member(folder + "._0000.jpg", "finder") + tar_member(folder + "0000.jpg", image(1)));
    const Listing listing = list_shards(scratch_ / "mac.tar", "`dataset`");
    EXPECT_EQ(listing.images->size(), 1);
    EXPECT_EQ(listing.labels.item<int64_t>(), 1);
    EXPECT_EQ(listing.images->read(0), image(1));
  }
}

TEST_F(ShardFiles, AreListedInOrder) {
  const Listing listing = list_shards(pattern(), "");
  EXPECT_TRUE(listing.labels.equal(at::tensor({0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}, at::kLong)));
  EXPECT_EQ(listing.images->size(), 12);
  EXPECT_EQ(listing.images->short_name(6), "1/sample2");
  EXPECT_EQ(listing.images->read(6), image(6));
  EXPECT_EQ(listing.images->name(6), scratch_ / "s-01.tar" + ": 1/sample2");
}

TEST_F(ShardFiles, HaveIndicesThatSayTheSame) {
  const Listing before = list_shards(pattern(), "");
  EXPECT_EQ(write_shard_indices(pattern(), ""), 12);
  const Listing after = list_shards(pattern(), "");
  EXPECT_TRUE(after.labels.equal(before.labels));
  for (int64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(after.images->name(i), before.images->name(i));
    EXPECT_EQ(after.images->read(i), before.images->read(i));
  }
}

TEST_F(ShardFiles, RefuseAnIndexOfOtherShards) {
  write_shard_indices(pattern(), "");
  std::filesystem::copy_file(scratch_ / "s-00.tar", scratch_ / "s-01.tar",
                             std::filesystem::copy_options::overwrite_existing);
  refused("s-01.tar", "s-01.tar.index: not of the s-01.tar beside it: `prunex data index` makes it anew");
  std::ifstream file(scratch_ / "s-02.tar.index");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  write_index("s-02.tar", text + "9 99999999 0 key\n");
  refused("s-02.tar", "damaged: '9 99999999 0 key'");
  const size_t head = text.find('\n') + 1, last = text.rfind('\n', text.size() - 2) + 1;
  for (const auto& part : {text + "9", text.substr(0, text.size() - 1), text.substr(0, last), text.substr(0, head),
                           text.substr(0, head - 1), text.substr(0, head - 2)}) {
    write_index("s-02.tar", part);
    refused("s-02.tar", "cut short");
  }
}

// A label in the middle of a shard can change without its size and its ends.
TEST_F(ShardFiles, AreReadThemselvesBesideAnIndexOfAnotherTime) {
  const auto shard_with = [&](const std::string& label) {  // far from both ends
    const std::string ballast = tar_member("a.bin", std::string(100'000, ' '));
    write_tar("a.tar", ballast + tar_member("b.jpg", image(0)) + tar_member("b.cls", label) + ballast);
  };
  shard_with("1");
  write_shard_indices(scratch_ / "a.tar", "");
  EXPECT_EQ(list_shards(scratch_ / "a.tar", "").labels.item<int64_t>(), 1);
  const auto then = std::filesystem::last_write_time(scratch_ / "a.tar");
  shard_with("2");
  for (const int hours : {1, -1}) {  // or older, as a copy of what it was before
    std::filesystem::last_write_time(scratch_ / "a.tar", then + std::chrono::hours(hours));
    EXPECT_EQ(list_shards(scratch_ / "a.tar", "").labels.item<int64_t>(), 2);
  }
}

TEST_F(ShardFiles, WithLineBreaksInTheirNamesGetNoIndex) {
  write_tar("a.tar", tar_member("b\nc.jpg", image(0)) + tar_member("b\nc.cls", "1"));
  EXPECT_EQ(list_shards(scratch_ / "a.tar", "").images->short_name(0), "b\nc");
  EXPECT_THAT([&] { write_shard_indices(scratch_ / "a.tar", "`IMAGES`"); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("a.tar: b\nc: a line break in the name")));
  for (const auto& entry : std::filesystem::directory_iterator(scratch_.path())) {
    EXPECT_EQ(entry.path().extension(), ".tar");
  }
}

TEST_F(ShardFiles, AreTrainedOnLikeFolders) {
  DataOptions options;
  options.dataset = pattern();
  options.test = scratch_ / "s-02.tar";
  options.image_size = 16;
  const Datasets sets = load_datasets(options);
  EXPECT_EQ(sets.train.classes, 3);
  EXPECT_EQ(sets.test.size(), 4);
  const Batch batch = Loader(sets.train, {.batch_size = 12, .seed = 1}).batch(0, 0);
  EXPECT_EQ(batch.images.sizes(), (std::vector<int64_t>{12, 3, 16, 16}));
  EXPECT_TRUE(std::get<0>(batch.labels.sort()).equal(std::get<0>(sets.train.labels.sort())));
  options.test.clear();
  EXPECT_THAT([&] { load_datasets(options); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("wanted shards such as val-")));
  write_tar("more.tar", tar_member("a.jpg", image(0)) + tar_member("a.cls", "3"));
  options.test = scratch_ / "more.tar";
  EXPECT_THAT([&] { load_datasets(options); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("labels go up to 3, wanted up to 2")));
}

TEST_F(ShardFiles, ThatAreNotSoAreRefused) {
  const std::string good = tar_member("a.jpg", image(0)) + tar_member("a.cls", "1");
  refused("nowhere.tar", "No such file");
  write("a.tar", "no tar file");
  refused("a.tar", "the tar file is cut short, at byte 0");
  write("b.tar", std::string(600, 'x'));
  refused("b.tar", "no tar header, or a damaged one");
  write("c.tar", good.substr(0, 700));
  refused("c.tar", "the tar file is cut short, at byte 0");
  write_tar("d.tar", tar_member("a.jpg", image(0)));
  refused("d.tar", "a has no label");
  write_tar("e.tar", tar_member("a.cls", "1"));
  refused("e.tar", "a has no image");
  write_tar("f.tar", tar_member("a.jpg", image(0)) + tar_member("a.cls", "cat"));
  refused("f.tar", "a.cls: wanted a label");
  write_tar("g.tar", tar_member("README", "text"));
  refused("g.tar", "no samples in it");
  write("h.tar", "");
  refused("h.tar", "no end of a tar file");
  write_tar("i.tar", "");
  refused("i.tar", "no files in it");
  write("j.tar", good);  // between members, where nothing looks damaged
  refused("j.tar", "no end of a tar file: it is cut short, or was not closed");
  write_tar("k.tar", good + std::string(1024, '\0') + good);
  refused("k.tar", "something behind the end of a tar file");
  for (const char link : {'1', '2'}) {  // GNU tar writes a file's second name so
    write_tar("l.tar", good + tar_member("b.jpg", "", link) + tar_member("b.cls", "1"));
    refused("l.tar", "'b.jpg' is a link");
  }
  write_tar("m.tar", good + tar_member("b", "", '6'));
  refused("m.tar", "'b' is neither a file nor a folder");
}

TEST_F(ShardFiles, OfKeysThatHoldSeveralSamplesAreRefused) {
  const std::string one = tar_member("a.jpg", image(0)), label = tar_member("a.cls", "1");
  write_tar("a.tar", one + label + one + label);
  refused("a.tar", "a.jpg: a second image of key a, wanted one");
  write_tar("b.tar", one + label + label);
  refused("b.tar", "a.cls: a second label of key a, wanted one");
  const std::string dotted = tar_member("d/n.5.jpg", image(0)) + tar_member("d/n.5.cls", "1");
  write_tar("c.tar", one + label + dotted);
  refused("c.tar", "d/n.5.jpg: got the extension .5.jpg, all behind the name's first dot, wanted .jpg");
  write_tar("d.tar", tar_member("d/n.jpg", image(0)) + tar_member("d/n.cls", "1") + dotted);
  refused("d.tar", "d/n.5.jpg: got the extension .5.jpg");
}

TEST_F(ShardFiles, MayHoldFurtherImagesOfASample) {
  write_tar("a.tar", tar_member("._a.jpg", "") + tar_member("a.mask.png", "") + tar_member("a.jpg", image(0)) +
                         tar_member("a.cls", "1"));
  const Listing listing = list_shards(scratch_ / "a.tar", "");
  EXPECT_EQ(listing.images->size(), 1);
  EXPECT_EQ(listing.images->read(0), image(0));
}

/// Records "LENGTH KEY=VALUE\n"; what looks like one in a value is none.
TEST_F(ShardFiles, OfPaxHeadersAreReadByTheirLengths) {
  const auto record = [](const std::string& words) {
    size_t length = words.size() + 4;  // two digits, a blank, a line break
    return fmt::format("{} {}\n", length, words);
  };
  const std::string named =
      record("comment=a path=wrong.jpg\n17 path=wrong") + record("path=a size=3.jpg") + record("mtime=1700000000.5");
  write_tar("a.tar",
            tar_member("PaxHeader", named, 'x') + tar_member("short.jpg", image(0)) + tar_member("a size=3.cls", "1"));
  const Listing listing = list_shards(scratch_ / "a.tar", "");
  EXPECT_EQ(listing.images->size(), 1);
  EXPECT_EQ(listing.images->short_name(0), "a size=3");
  EXPECT_EQ(listing.images->read(0), image(0));
  write_tar("a.tar", tar_member("PaxHeader", record("size=99999999999"), 'x') + tar_member("b.jpg", image(0)));
  refused("a.tar", "a member of more than 8 GiB");
}

TEST_F(ShardFiles, WithMoreClassesThanImagesAreRefused) {
  write_tar("a.tar", tar_member("b.jpg", image(0)) + tar_member("b.cls", "16777215"));
  DataOptions options;
  options.dataset = options.test = scratch_ / "a.tar";
  EXPECT_THAT(
      [&] { load_datasets(options); },
      ThrowsMessage<std::invalid_argument>(HasSubstr("labels go up to 16777215, more classes than the 1 images")));
}

TEST_F(ShardFiles, OfGnuTarWithLongNamesAreRead) {
  const std::string folder = std::string(60, 'd') + "/" + std::string(60, 'e');
  std::filesystem::create_directories(scratch_ / folder);
  write(folder + "/k.jpeg", image(1));
  write(folder + "/k.cls", "7");
  for (const char* format : {"gnu", "pax", "ustar"}) {
    const std::string tar = scratch_ / (std::string(format) + ".tar");
    ASSERT_EQ(std::system(fmt::format("tar -C '{}' --sort=name --format={} -cf '{}' '{}'", scratch_.path(), format, tar,
                                      std::string(60, 'd'))
                              .c_str()),
              0);
    const Listing listing = list_shards(tar, "");
    EXPECT_EQ(listing.images->short_name(0), folder + "/k") << format;
    EXPECT_EQ(listing.images->read(0), image(1));
    EXPECT_EQ(listing.labels.item<int64_t>(), 7);
  }
}

}  // namespace
}  // namespace prunex::data
