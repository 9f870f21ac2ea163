// What the commands make of the numbers that a product carries for its images.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/command.h"
#include "tests/image_files.h"
#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::cli {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using tests::text_of;

using Words = std::vector<std::string>;

/// A short run on images of three classes has left run/model.pt2; bare.pt2 is a network of three classes that says
/// nothing.
class Normalization : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    scratch_ = new tests::Scratch;
    tests::write_images(at("train.safetensors"), 60, 3);
    tests::write_images(at("test.safetensors"), 12, 2);
    tests::write_images(at("more.safetensors"), 12, 4);
    tests::write_tensors(at("pixels.safetensors"), {{"input", "U8", {2, 3, 32, 32}, tests::pixels(2, 2)}});
    tests::write_tensors(at("floats.safetensors"), {{"input", "F32", {1, 3, 32, 32}, std::string(4 * 3072, '\0')}});
    ran({"train", "--dataset", "train.safetensors", "--test", "test.safetensors", "--model", "resnet8", "--exchanges",
         "2", "--local-steps", "2", "--batch-size", "8", "--quiet", "--precision", "fp32", "--run-dir", "run"});
    ran({"graph", "--model", "resnet8", "--classes", "3", "--save", "bare.pt2"});
  }
  static void TearDownTestSuite() { delete scratch_; }

  static std::string at(const std::string& name) { return *scratch_ / name; }
  static Result ran(const Words& words) {
    const Result result = run(scratch_->path(), words);
    EXPECT_EQ(result.status, 0) << testing::PrintToString(words) << result.errors;
    return result;
  }
  static void refused(const Words& words, const std::string& why) {
    const Result result = run(scratch_->path(), words);
    EXPECT_EQ(result.status, 2) << testing::PrintToString(words);
    EXPECT_THAT(result.errors, HasSubstr(why)) << testing::PrintToString(words);
    EXPECT_EQ(result.output, "");
  }
  static std::string predict(const Words& more, const std::string& model = "run/model.pt2") {
    Words words{"predict", "--model", model, "--input", "pixels.safetensors", "--output", "output.safetensors"};
    words.insert(words.end(), more.begin(), more.end());
    ran(words);
    return text_of(at("output.safetensors"));
  }
  static json summary() { return json::parse(text_of(at("run/summary.json"))); }
  static std::string list(const json& numbers) {
    const std::string text = numbers.dump();
    return text.substr(1, text.size() - 2);
  }

  static inline tests::Scratch* scratch_ = nullptr;
};

TEST_F(Normalization, LetsEvalScoreATestFileByItself) {
  const Result alone = ran({"eval", "--model", "run/model.pt2", "--test", "test.safetensors", "--json", "score.json"});
  EXPECT_EQ(alone.errors, "");
  EXPECT_EQ(json::parse(text_of(at("score.json")))["accuracy"], summary()["accuracy_compact"]);
}

TEST_F(Normalization, IsTheFilesWhateverTheDataSetSays) {
  const Result other = ran({"eval", "--model", "run/model.pt2", "--dataset", "test.safetensors", "--test",
                            "test.safetensors", "--json", "score.json"});
  EXPECT_THAT(other.errors, AllOf(HasSubstr("prunex: images are normalised as run/model.pt2 says (mean "),
                                  HasSubstr("not as test says (mean ")));
  const double loss = json::parse(text_of(at("score.json")))["loss"];
  EXPECT_NEAR(loss, summary()["loss"].get<double>(), 1e-4);
}

TEST_F(Normalization, ComesWithClassesThatEvalCompares) {
  ran({"train", "--samples", "80", "--model", "resnet8", "--exchanges", "1", "--local-steps", "1", "--batch-size", "8",
       "--quiet", "--strategy", "local_sgd", "--run-dir", "shapes"});
  std::filesystem::create_directory(at("data"));
  const std::string image(3072, '\x40');
  for (int i = 1; i <= 5; ++i) std::ofstream(at("data/data_batch_" + std::to_string(i) + ".bin")) << '\1' << image;
  std::ofstream(at("data/test_batch.bin")) << '\2' << image;
  std::ofstream(at("data/batches.meta.txt"))
      << "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n";
  EXPECT_THAT(ran({"eval", "--model", "shapes/model.pt2", "--dataset", "cifar10"}).errors,
              HasSubstr("prunex: warning: shapes/model.pt2 knows the classes disc, ring, square and 7 others; cifar10 "
                        "has airplane, automobile, bird and 7 others"));
}

TEST_F(Normalization, IsWantedFromWhereItMayComeIfTheFileHasNone) {
  refused({"eval", "--model", "bare.pt2", "--test", "test.safetensors"},
          "--test test.safetensors: bare.pt2 does not say how images are normalised: --dataset");
  refused({"predict", "--model", "bare.pt2", "--input", "pixels.safetensors", "--output", "o.safetensors"},
          "--input pixels.safetensors: 'input' is Byte, and bare.pt2 does not say how pixels are normalised: wanted "
          "--mean and --std");
}

TEST_F(Normalization, OfPredictMayBeGiven) {
  const json numbers = summary()["normalization"];
  const std::string carried = predict({});
  EXPECT_TRUE(predict({"--mean", list(numbers["mean"]), "--std", list(numbers["std"])}) == carried);
  EXPECT_FALSE(predict({"--mean", "0,0,0", "--std", "1,1,1"}) == carried);
  EXPECT_FALSE(predict({"--mean", "0,0,0", "--std", "1,1,1"}, "bare.pt2").empty());
}

TEST_F(Normalization, OfPredictIsRefusedWhereItMakesNoSense) {
  const auto given = [](const Words& more, const std::string& why, const char* input = "pixels.safetensors") {
    Words words{"predict", "--model", "run/model.pt2", "--input", input, "--output", "o.safetensors"};
    words.insert(words.end(), more.begin(), more.end());
    refused(words, why);
  };
  given({"--mean", "0,0,0"}, "--mean and --std: wanted both or none");
  given({"--mean", "0,0,x", "--std", "1,1,1"}, "--mean: got 'x', wanted a number");
  given({"--mean", "0,0,nan", "--std", "1,1,1"}, "--mean: got 'nan'");
  given({"--mean", "0,0", "--std", "1,1"}, "--mean: normalises 2 channels, the images of pixels.safetensors have 3");
  given({"--mean", "0,0,0", "--std", "1,1"}, "--std: got 2 numbers, wanted 3");
  given({"--mean", "0,0,0", "--std", "1,1,0"}, "--std: got 0, wanted a number above 0");
  given({"--mean", "0,0,0", "--std", "1,1,1"}, "'input' of floats.safetensors is Float, which is taken as it is",
        "floats.safetensors");
}

TEST_F(Normalization, GoesAlongWithWhatPruneAndGraphWrite) {
  ran({"prune", "--model", "run/model.pt2", "--ratio", "0.25", "--output", "small"});
  ran({"prune", "--model", "resnet8", "--classes", "3", "--ratio", "0.25", "--dataset", "train.safetensors", "--test",
       "test.safetensors", "--output", "fresh"});
  ran({"graph", "--model", "run/model.pt2", "--save", "again.pt2"});
  for (const char* model : {"small/model.pt2", "fresh/model.pt2", "again.pt2"}) {
    const Result result =
        ran({"eval", "--model", model, "--dataset", "train.safetensors", "--test", "test.safetensors"});
    EXPECT_EQ(result.errors, "") << model;
    ran({"eval", "--model", model, "--test", "test.safetensors"});
  }
}

TEST_F(Normalization, RefusesTestLabelsThatAreNoClasses) {
  refused({"train", "--dataset", "train.safetensors", "--test", "more.safetensors", "--run-dir", "no"},
          "more.safetensors: labels go up to 3, those of train.safetensors to 2");
  refused({"eval", "--model", "run/model.pt2", "--test", "more.safetensors"},
          "--model run/model.pt2: its output is [batch, 3], more has 4 classes");
}

TEST(NothingToCut, IsSaidByPruneAtTheStart) {
  const tests::Scratch scratch;
  const Result result = run(scratch.path(), {"prune", "--model", PRUNEX_TEST_DATA "/prune/cases/rms_norm.pt2",
                                             "--ratio", "0.5", "--output", "out"});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.errors, AllOf(HasSubstr("prunex: warning: --model "), HasSubstr("nothing can be cut: ")));
}

}  // namespace
}  // namespace prunex::cli
