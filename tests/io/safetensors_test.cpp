// Round trips, the bytes of the format as its specification gives them, and files that are damaged.
#include "prunex/io/safetensors.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <stdexcept>

#include "tests/mutations.h"
#include "tests/python.h"
#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::io {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using testing::ThrowsMessage;
using tests::message;
using tests::Scratch;
using tests::text_of;
using tests::write_text;

TensorDict one_of_each_type() {
  TensorDict tensors;
  for (auto type : {at::kByte, at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort,
                    at::kChar, at::kBool}) {
    tensors.insert(c10::toString(type), at::arange(6).reshape({2, 3}).remainder(2 + (type != at::kBool) * 5).to(type));
  }
  return tensors;
}

// A file with this header, its length in front, and `bytes` zeros of data.
std::string file_of(const std::string& header, size_t bytes) {
  uint64_t length = header.size();
  return std::string(reinterpret_cast<char*>(&length), sizeof(length)) + header + std::string(bytes, '\0');
}

void expect_refused(const std::string& bytes, const std::string& reason) {
  Scratch scratch;
  write_text(scratch / "bad", bytes);
  EXPECT_THAT(
      [&] { read_safetensors(scratch / "bad"); },
      ThrowsMessage<std::runtime_error>(AllOf(HasSubstr(scratch / "bad"), HasSubstr(reason), Not(HasSubstr("\n")))))
      << bytes;
}

TEST(SafeTensors, AreWrittenAgainWithTheMetadataThatTheyWereReadWith) {
  TensorDict tensors;
  tensors.insert("a", at::ones({2}));
  const std::string once = to_safetensors(tensors, {{"key", "value"}, {"prunex.crc32", "of another file"}});
  const SafeTensors back = parse_safetensors(once, "it");
  EXPECT_EQ(back.metadata, (Metadata{{"key", "value"}}));
}

TEST(SafeTensors, RoundTripsEveryTypeInTheOrderOfTheDictionary) {
  Scratch scratch;
  TensorDict tensors = one_of_each_type();
  write_safetensors(scratch / "a", tensors, {{"key", "välue"}});
  SafeTensors back = read_safetensors(scratch / "a");
  EXPECT_EQ(back.tensors.keys(), tensors.keys());
  for (auto& item : tensors) {
    EXPECT_EQ(back.tensors[item.key()].scalar_type(), item.value().scalar_type());
    EXPECT_TRUE(at::equal(back.tensors[item.key()], item.value())) << item.key();
  }
  EXPECT_EQ(back.metadata, (Metadata{{"key", "välue"}}));
}

// Oracle: the package safetensors of the format's authors, in both directions.
TEST(SafeTensors, IsReadByPythonAndReadsWhatPythonWrites) {
  Scratch scratch;
  TensorDict tensors = one_of_each_type();
  write_safetensors(scratch / "ours", tensors, {{"key", "välue"}});
  PRUNEX_RUN_PYTHON("tests/io/check_safetensors.py", scratch / "ours", scratch / "theirs");
  SafeTensors back = read_safetensors(scratch / "theirs");
  EXPECT_EQ(back.tensors.size(), tensors.size());
  for (auto& item : tensors) {
    EXPECT_EQ(back.tensors[item.key()].scalar_type(), item.value().scalar_type());
    EXPECT_TRUE(at::equal(back.tensors[item.key()], item.value())) << item.key();
  }
  EXPECT_EQ(back.metadata, (Metadata{{"key", "välue"}}));
}

TEST(SafeTensors, RoundTripsScalarsAndEmptyTensors) {
  Scratch scratch;
  TensorDict tensors;
  tensors.insert("scalar", at::scalar_tensor(7, at::kLong));
  tensors.insert("empty", at::empty({0, 3}));
  tensors.insert("last", at::ones({2}));
  write_safetensors(scratch / "a", tensors);
  SafeTensors back = read_safetensors(scratch / "a");
  EXPECT_EQ(back.tensors["scalar"].item<int64_t>(), 7);
  EXPECT_EQ(back.tensors["scalar"].dim(), 0);
  EXPECT_EQ(back.tensors["empty"].sizes(), (std::vector<int64_t>{0, 3}));
  EXPECT_TRUE(at::equal(back.tensors["last"], at::ones({2})));
}

// https://huggingface.co/docs/safetensors: 8 bytes of header length, the header padded by spaces, the data. The
// checksums are from Python: zlib.crc32(b"a U8 [2]\n\x01\x02"), zlib.crc32(b"b I16 [1]\n\xff\xff").
TEST(SafeTensors, WritesTheBytesOfTheSpecification) {
  Scratch scratch;
  TensorDict tensors;
  tensors.insert("a", at::tensor({1, 2}, at::kByte));
  tensors.insert("b", at::tensor({-1}, at::kShort));
  write_safetensors(scratch / "a", tensors);
  std::string header =
      R"({"__metadata__":{"prunex.crc32":"{\"__metadata__\":\"00000000\",\"a\":\"6a9d9fbf\",\"b\":\"9e0409e6\"}"},)"
      R"("a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]},"b":{"dtype":"I16","shape":[1],"data_offsets":[0,2]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(text_of(scratch / "a"), file_of(header, 0) + "\xff\xff\x01\x02");
}

TEST(SafeTensors, WritesRowMajorWhateverTheMemoryLayout) {
  Scratch scratch;
  at::Tensor values = at::arange(2 * 3 * 4 * 5, at::kFloat).reshape({2, 3, 4, 5});
  TensorDict plain, other;
  plain.insert("w", values);
  plain.insert("t", values.select(0, 0).select(0, 0).t().contiguous());
  other.insert("w", values.contiguous(at::MemoryFormat::ChannelsLast).set_requires_grad(true));
  other.insert("t", values.select(0, 0).select(0, 0).t());
  write_safetensors(scratch / "plain", plain);
  write_safetensors(scratch / "other", other);
  EXPECT_EQ(text_of(scratch / "plain"), text_of(scratch / "other"));
}

TEST(SafeTensors, RefusesATypeTheFormatLacks) {
  Scratch scratch;
  TensorDict tensors;
  tensors.insert("w", at::zeros({1}, at::kComplexFloat));
  EXPECT_THAT([&] { write_safetensors(scratch / "a", tensors); },
              ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("tensor w"), HasSubstr("ComplexFloat"))));
}

TEST(SafeTensors, NamesWhatAFileHoldsWhenATensorIsMissing) {
  SafeTensors file;
  file.tensors.insert("image", at::ones({1}));
  file.tensors.insert("label", at::ones({1}));
  EXPECT_THAT([&] { tensor_of(file, "images", "f.safetensors"); },
              ThrowsMessage<std::runtime_error>("f.safetensors has no tensor images, it holds: image, label"));
  for (int i = 0; i < 300; ++i) file.tensors.insert(fmt::format("\n{}", i), at::ones({1}));
  EXPECT_THAT([&] { tensor_of(file, "images", "f"); },
              ThrowsMessage<std::runtime_error>(AllOf(EndsWith("\\n16, \\n17 and 282 more"), Not(HasSubstr("\n")))));
}

TEST(SafeTensors, RefusesAMissingFileAndAFolder) {
  Scratch scratch;
  EXPECT_THAT([&] { read_safetensors(scratch / "no"); },
              ThrowsMessage<std::runtime_error>(AllOf(HasSubstr(scratch / "no"), HasSubstr("No such file"))));
  EXPECT_THAT([&] { read_safetensors(scratch.path()); },
              ThrowsMessage<std::runtime_error>(AllOf(HasSubstr(scratch.path()), HasSubstr("directory"))));
}

TEST(SafeTensors, ANamedPipeIsNotWaitedFor) {
  const Scratch scratch;
  ASSERT_EQ(::mkfifo((scratch / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(message([&] { read_safetensors(scratch / "pipe"); }), StartsWith("cannot read " + (scratch / "pipe")));
}

TEST(SafeTensors, RefusesEveryTruncation) {
  Scratch scratch;
  write_safetensors(scratch / "good", one_of_each_type());
  std::string bytes = text_of(scratch / "good");
  for (size_t size = 0; size < bytes.size(); size += 13) {
    write_text(scratch / "bad", bytes.substr(0, size));
    EXPECT_THROW(read_safetensors(scratch / "bad"), std::runtime_error) << size;
  }
}

// Every byte of the file counts: of the header, of the checksums, of the data.
TEST(SafeTensors, FindsEveryByteThatChanged) {
  Scratch scratch;
  TensorDict tensors;
  tensors.insert("w", at::arange(6, at::kFloat).reshape({2, 3}));
  tensors.insert("mask", at::tensor({1, 0}).to(at::kBool));
  write_safetensors(scratch / "good", tensors, {{"key", "value"}});
  const std::string bytes = text_of(scratch / "good");
  for (const auto& flipped : tests::flips(bytes, bytes.size())) {
    write_text(scratch / "bad", flipped);
    const auto said = message([&] {
      const SafeTensors back = read_safetensors(scratch / "bad");
      for (auto& item : tensors) {
        if (!at::equal(back.tensors[item.key()], item.value())) throw std::logic_error("other values");
      }
    });
    EXPECT_THAT(said, AnyOf("no exception", StartsWith("cannot read " + (scratch / "bad"))));
  }
}

TEST(SafeTensors, NamesTheTensorThatAByteChangedIn) {
  Scratch scratch;
  write_safetensors(scratch / "good", one_of_each_type());
  std::string bytes = text_of(scratch / "good");
  bytes[bytes.size() - 1] ^= 1;  // of the last of the narrow ones in the order of the dictionary
  expect_refused(bytes, "tensor Bool is damaged: its checksum does not match");
  bytes = text_of(scratch / "good");
  const auto header_end = bytes.find("}}") + 2;
  bytes[(header_end + 7) / 8 * 8] ^= 1;  // the widest come first
  expect_refused(bytes, "tensor Double is damaged");
}

TEST(SafeTensors, ChecksumsAreOfTheseTensorsAndOfTheMetadata) {
  Scratch scratch;
  TensorDict tensors;
  tensors.insert("a", at::ones({2}));
  tensors.insert("b", at::ones({2}));
  write_safetensors(scratch / "good", tensors, {{"key", "value"}});
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string bytes = text_of(scratch / "good");
    return bytes.replace(bytes.find(from), from.size(), to);
  };
  expect_refused(with("\"value\"", "\"Value\""), "the checksum of __metadata__ does not match");
  expect_refused(with("\"a\":{", "\"c\":{"), "tensor c has no checksum");
  expect_refused(with("\"dtype\":\"F32\"", "\"dtype\":\"I32\""), "tensor a is damaged");
  const std::string entry = R"("b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]})";
  std::string another = R"("__metadata__":{})";
  another.resize(entry.size(), ' ');
  expect_refused(with(entry, another), "__metadata__ is there twice");
}

TEST(SafeTensors, ReadsFilesWithoutChecksums) {
  Scratch scratch;
  write_text(scratch / "a", file_of(R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 2));
  EXPECT_TRUE(at::equal(read_safetensors(scratch / "a").tensors["w"], at::zeros({2}, at::kByte)));
}

// A header is read in time in proportion to its length: one of so many tensors would not end otherwise.
TEST(SafeTensors, ReadsManyTensorsInTheirOrder) {
  constexpr int kMany = 100'000;
  Scratch scratch;
  std::string header = "{";
  for (int i = kMany; i > 0; --i) {
    header += fmt::format(R"("{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}{})", i, i > 1 ? "," : "}");
  }
  write_text(scratch / "a", file_of(header, 0));
  const auto names = read_safetensors(scratch / "a").tensors.keys();
  ASSERT_EQ(names.size(), static_cast<size_t>(kMany));
  EXPECT_EQ(names.front(), std::to_string(kMany));
  EXPECT_EQ(names.back(), "1");
}

TEST(SafeTensors, DamagedFilesAreReadOrRefusedInOneLine) {
  Scratch scratch;
  TensorDict tensors;
  tensors.insert("conv.weight", at::arange(6, at::kFloat).reshape({2, 3}));
  tensors.insert("step", at::scalar_tensor(7, at::kLong));
  write_safetensors(scratch / "good", tensors, {{"key", "value"}});
  const std::string ours = text_of(scratch / "good");
  const std::string theirs = file_of(R"({"w":{"dtype":"U8","shape":[1,2],"data_offsets":[0,2]},"__metadata__":{}})", 2);
  for (const auto& bytes : {ours, theirs}) {
    for (const auto& damaged : tests::damaged(bytes, 300, 50, 200)) {
      write_text(scratch / "bad", damaged);
      const auto said = message([&] { read_safetensors(scratch / "bad"); });
      EXPECT_THAT(said, AnyOf("no exception", StartsWith("cannot read " + (scratch / "bad") + ": ")));
      EXPECT_THAT(said, Not(HasSubstr("\n")));
    }
  }
}

TEST(SafeTensors, RefusesHeadersThatAreNone) {
  expect_refused("", "0 bytes are too few");
  expect_refused(std::string(8, '\xff') + "{}", "not a safetensors file");
  expect_refused(std::string("\x03\0\0\0\0\0\0\0{}", 10), "header of 3 bytes in a file of 10");
  expect_refused(file_of("{\"a\":", 0), "not a JSON object");
  expect_refused(file_of("[1]", 0), "not a JSON object");
  expect_refused(file_of(std::string(200'000, '['), 0), "nested deeper than 100 levels (line 1, column 101)");
  expect_refused(file_of("{\"__metadata__\":" + std::string(200'000, '['), 0), "nested deeper than 100 levels");
  expect_refused(file_of(R"({"__metadata__":{"a":1}})", 0), "__metadata__");
}

TEST(SafeTensors, RefusesEntriesThatAreWrong) {
  expect_refused(file_of(R"({"a\nb":3})", 0), "tensor a\\nb has no dtype");
  expect_refused(file_of(R"({"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                         R"("w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                         0),
                 "w is there twice");
  expect_refused(file_of(R"({"w":{"dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}})", 0),
                 "0 bytes");
  std::string ones = "1";
  for (int i = 1; i < 65; ++i) ones += ",1";
  expect_refused(file_of(R"({"w":{"dtype":"U8","shape":[)" + ones + R"(],"data_offsets":[0,1]}})", 1),
                 "tensor w has 65 dimensions, wanted at most 64");
  expect_refused(file_of(R"({"w":3})", 0), "tensor w has no dtype");
  expect_refused(file_of(R"({"w":{"dtype":"U8","shape":[2]}})", 2), "tensor w has no data_offsets");
  expect_refused(file_of(R"({"w":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}})", 2), "F8_E4M3");
  expect_refused(file_of(R"({"w":{"dtype":8,"shape":[2],"data_offsets":[0,2]}})", 2), "dtype 8");
  expect_refused(file_of(R"({"w":{"dtype":"U8","shape":[-2],"data_offsets":[0,2]}})", 2), "[-2]");
  expect_refused(file_of(R"({"w":{"dtype":"U8","shape":[2.0],"data_offsets":[0,2]}})", 2), "[2.0]");
  expect_refused(file_of(R"({"w":{"dtype":"U8","shape":[3],"data_offsets":[0,2]}})", 2), "does not take 2 bytes");
  expect_refused(file_of(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,2]}})", 2), "does not take 2 bytes");
  expect_refused(file_of(R"({"w":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
                 "4294967296");
  expect_refused(file_of(R"({"w":{"dtype":"U8","shape":[0,18446744073709551615],"data_offsets":[0,0]}})", 0),
                 "0 bytes");
}

TEST(SafeTensors, RefusesOffsetsThatLeaveOverlapOrWasteTheData) {
  expect_refused(file_of(R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 2), "[1,3] of 2 bytes");
  expect_refused(file_of(R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[2,0]}})", 2), "[2,0] of 2 bytes");
  expect_refused(file_of(R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2,4]}})", 4), "[0,2,4]");
  expect_refused(file_of(R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 3), "last 1 bytes");
  expect_refused(file_of(R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3), "before tensor w");
  expect_refused(file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                         R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                         3),
                 "tensor b overlaps");
}

TEST(SafeTensors, InMemoryAreTheFilesBytes) {
  const tests::Scratch scratch;
  TensorDict tensors;
  tensors.insert("w", at::arange(6, at::kFloat).reshape({2, 3}));
  const Metadata metadata{{"a", "b"}};
  write_safetensors(scratch / "file", tensors, metadata);
  std::string bytes = to_safetensors(tensors, metadata);
  EXPECT_EQ(bytes, tests::text_of(scratch / "file"));
  const SafeTensors read = parse_safetensors(bytes, "the message");
  EXPECT_TRUE(at::equal(read.tensors["w"], tensors["w"]));
  EXPECT_EQ(read.metadata, metadata);
  bytes.back() ^= 1;
  EXPECT_THAT(
      [&] { parse_safetensors(bytes, "the message"); },
      testing::ThrowsMessage<std::runtime_error>(testing::HasSubstr("cannot read the message: tensor w is damaged")));
}

}  // namespace
}  // namespace prunex::io
