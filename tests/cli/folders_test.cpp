// The command on folders and shards of images.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/command.h"
#include "tests/data_tests/encoded.h"
#include "tests/json_lines.h"
#include "tests/python.h"
#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

/// Two classes of twelve images to train on, of four to test on.
class ImageFolders : public testing::Test {
 protected:
  ImageFolders() {
    int seed = 0;
    for (const char* part : {"train", "val"}) {
      for (const char* name : {"ant", "bee"}) {
        const std::string folder = fmt::format("set/{}/{}", part, name);
        std::filesystem::create_directories(scratch_ / folder);
        for (int i = 0; i < (folder.find("val") == std::string::npos ? 12 : 4); ++i) {
          write(fmt::format("{}/{}.jpg", folder, i), data::jpeg_of(data::waves(30, 40, 3, seed++), 30, 40));
        }
      }
    }
  }
  void write(const std::string& name, const std::string& bytes) {
    std::ofstream(scratch_ / name, std::ios::binary) << bytes;
  }
  std::string text_of(const std::string& name) { return tests::text_of(scratch_ / name); }
  Result train(const std::string& run, const std::vector<std::string>& more, const std::string& set = "set") {
    std::vector<std::string> words{"train",   "--dataset",    set,        "--image-size",  "32", "--model",
                                   "resnet8", "--batch-size", "4",        "--local-steps", "2",  "--exchanges",
                                   "2",       "--precision",  "fp32",     "--run-dir",     run,  "--groups",
                                   "none",    "--strategy",   "local_sgd"};
    words.insert(words.end(), more.begin(), more.end());
    return cli::run(scratch_.path(), words);
  }
  /// The losses of all exchanges.
  std::vector<double> losses(const std::string& run) {
    std::vector<double> all;
    for (const auto& line : tests::json_lines(scratch_ / (run + "/metrics.jsonl"))) all.push_back(line.at("loss"));
    return all;
  }

  const tests::Scratch scratch_;
};

TEST_F(ImageFolders, TrainAProductThatKnowsThem) {
  const Result result = train("one", {"--nodes", "2", "--validation", "4", "--data-threads", "1", "--resize", "50"});
  ASSERT_EQ(result.status, 0) << result.errors;
  const auto summary = nlohmann::json::parse(text_of("one/summary.json"));
  EXPECT_EQ(summary.at("classes"), (std::vector<std::string>{"ant", "bee"}));
  EXPECT_EQ(summary.at("normalization").at("mean"), (std::vector<double>{0.485, 0.456, 0.406}));
  EXPECT_THAT(text_of("one/model.safetensors"), HasSubstr(R"(\"resize\":50)"));
  const Result eval =
      cli::run(scratch_.path(), {"eval", "--model", "one/model.pt2", "--test", "set/val", "--json", "e.json"});
  ASSERT_EQ(eval.status, 0) << eval.errors;
  EXPECT_EQ(nlohmann::json::parse(text_of("e.json")).at("accuracy"), summary.at("accuracy"));
  const Result predict = cli::run(
      scratch_.path(), {"predict", "--model", "one/model.pt2", "--input", "set/val", "--output", "o.safetensors"});
  ASSERT_EQ(predict.status, 0) << predict.errors;
  EXPECT_THAT(text_of("o.safetensors"), HasSubstr("set/val/bee/3.jpg"));
  EXPECT_THAT(text_of("o.safetensors"), HasSubstr(R"("classes":"[\"ant\",\"bee\"]")"));
  EXPECT_THAT(predict.output, testing::ContainsRegex("(^|\n)set/val/bee/3.jpg  (ant|bee)  [0-9.]+ %\n"));
  const Result unnamed = cli::run(scratch_.path(), {"eval", "--model", "one/model.pt2"});
  EXPECT_EQ(unnamed.status, 2);
  EXPECT_THAT(unnamed.errors, HasSubstr("--dataset: got none, wanted that of the model's classes, ant to bee"));
  const Result said =
      cli::run(scratch_.path(), {"predict", "--model", "one/model.pt2", "--input", "set/val", "--output",
                                 "said.safetensors", "--mean", "0.485,0.456,0.406", "--std", "0.229,0.224,0.225"});
  ASSERT_EQ(said.status, 0) << said.errors;
  EXPECT_TRUE(text_of("said.safetensors") == text_of("o.safetensors"));  // cut as the model says
  EXPECT_EQ(summary.at("images_skipped"), 0);
  std::filesystem::copy(scratch_ / "set/val/bee/3.jpg", scratch_ / "SHOT.JPG");
  const Result shot = cli::run(
      scratch_.path(), {"predict", "--model", "one/model.pt2", "--input", "SHOT.JPG", "--output", "s.safetensors"});
  EXPECT_EQ(shot.status, 0) << shot.errors;
}

// What is in a folder counts, not where it is.
TEST_F(ImageFolders, MayHaveMovedWhenARunGoesOn) {
  ASSERT_EQ(train("moving", {"--checkpoint-every", "1"}).status, 0);
  const auto whole = losses("moving");
  std::filesystem::rename(scratch_ / "set", scratch_ / "elsewhere");
  const auto go_on = [&](const std::string& set) {
    return cli::run(scratch_.path(), {"train", "--resume", "moving", "--resume-exchange", "1", "--dataset", set});
  };
  const Result nowhere = cli::run(scratch_.path(), {"train", "--resume", "moving", "--resume-exchange", "1"});
  EXPECT_EQ(nowhere.status, 2);
  EXPECT_THAT(nowhere.errors, HasSubstr("--dataset: got 'set', wanted one of"));
  EXPECT_THAT(nowhere.errors, HasSubstr("nor is there a folder of this name"));
  const Result moved = go_on("elsewhere");
  EXPECT_EQ(moved.status, 0) << moved.errors;
  EXPECT_EQ(losses("moving"), whole);
  std::filesystem::remove(scratch_ / "elsewhere/train/bee/3.jpg");
  EXPECT_THAT(go_on("elsewhere").errors, HasSubstr("the images are not those with which the run began"));
}

TEST_F(ImageFolders, ToTestOnMayHaveMoved) {
  ASSERT_EQ(train("moving", {"--checkpoint-every", "1", "--test", "set/val"}).status, 0);
  std::filesystem::rename(scratch_ / "set/val", scratch_ / "tests");
  const auto go_on = [&] {
    return cli::run(scratch_.path(), {"train", "--resume", "moving", "--resume-exchange", "1", "--test", "tests"});
  };
  const Result moved = go_on();
  EXPECT_EQ(moved.status, 0) << moved.errors;
  std::filesystem::remove(scratch_ / "tests/bee/3.jpg");
  EXPECT_THAT(go_on().errors, HasSubstr("test images of tests: the images are not those with which the run began"));
}

const std::string kRandomWeights = "prunex: warning: the weights are random: --weights names trained ones\n";

/// prunex predict on the test images.
std::vector<std::string> predict_words(const std::vector<std::string>& more) {
  std::vector<std::string> words{"predict", "--model",     "resnet8", "--input",    "set/val",
                                 "--mean",  "0.5,0.5,0.5", "--std",   "0.5,0.5,0.5"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_F(ImageFolders, ArePredictedWhateverTheirNamesAre) {
  write("set/val/ant/\xff.jpg", data::jpeg_of(data::waves(30, 40, 3), 30, 40));
  const Result result = cli::run(scratch_.path(), predict_words({"--output", "o.safetensors"}));
  ASSERT_EQ(result.status, 0) << result.errors;
  const std::string name = "set/val/ant/\xEF\xBF\xBD.jpg";
  EXPECT_EQ(
      result.errors,
      kRandomWeights +
          "prunex: warning: o.safetensors: names in 'files' have U+FFFD for what is not UTF-8: 1 of 9, such as \"" +
          name + "\"\n");
  EXPECT_THAT(text_of("o.safetensors"), HasSubstr(name));
  EXPECT_EQ(cli::run(scratch_.path(), predict_words({"--output", "o.safetensors", "--quiet"})).errors, "");
}

TEST_F(ImageFolders, ArePredictedWithoutWhatIsBroken) {
  const Result whole = cli::run(scratch_.path(), predict_words({"--output", "o.safetensors"}));
  write("set/val/ant/1.jpg", "<html>404</html>");
  const Result some = cli::run(scratch_.path(), predict_words({"--output", "o.safetensors"}));
  EXPECT_EQ(some.status, 1);
  EXPECT_EQ(some.errors,
            "prunex: warning: --input set/val/ant/1.jpg: neither JPEG nor PNG nor WebP: left out\n" + kRandomWeights);
  EXPECT_THAT(text_of("o.safetensors"), testing::Not(HasSubstr("ant/1.jpg")));
  std::string rest = whole.output;
  const size_t begin = rest.find("set/val/ant/1.jpg");
  EXPECT_EQ(some.output, rest.erase(begin, rest.find('\n', begin) + 1 - begin));
  std::filesystem::remove(scratch_ / "o.safetensors");
  const auto refused = [&](const std::string& input, const std::string& message) {
    const Result none = cli::run(scratch_.path(), {"predict", "--model", "resnet8", "--mean", "0.5,0.5,0.5", "--std",
                                                   "0.5,0.5,0.5", "--input", input, "--output", "o.safetensors"});
    EXPECT_EQ(none.status, 2);
    EXPECT_THAT(none.errors, testing::EndsWith(message));
    EXPECT_FALSE(std::filesystem::exists(scratch_ / "o.safetensors"));
  };
  refused("set/val/ant/1.jpg", "prunex: --input set/val/ant/1.jpg: neither JPEG nor PNG nor WebP\n");
  std::filesystem::create_directory(scratch_ / "broken");
  write("broken/1.jpg", "");
  write("broken/2.jpg", "");
  refused("broken", "prunex: --input broken: no image of it can be read\n");
}

TEST_F(ImageFolders, AreNotReplacedByWhatIsPredicted) {
  const std::string before = text_of("set/val/bee/3.jpg");
  std::filesystem::create_symlink("set/val/bee/3.jpg", scratch_ / "o.safetensors");
  const auto refused = [&](const std::string& output, const std::string& why) {
    const Result result = cli::run(scratch_.path(), predict_words({"--output", output}));
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.errors, "prunex: --output: got " + output + ", which is " + why + "\n");
  };
  refused("o.safetensors", "an image of --input: wanted another file");
  refused("set/val/bee/3.jpg", "a name for images: wanted another");
  EXPECT_EQ(text_of("set/val/bee/3.jpg"), before);
}

/// The weights of 64 x 64 images in the built-in network, which takes 32 x 32: how those were scaled says nothing of
/// these.
TEST_F(ImageFolders, OfAnotherSizeThanWeightsWereTrainedOnAreScaledAsUsual) {
  const auto answers = [&](const std::string& resize) {
    const Result large =
        cli::run(scratch_.path(), {"train", "--dataset", "set", "--image-size", "64", "--model", "resnet8",
                                   "--batch-size", "4", "--exchanges", "1", "--strategy", "local_sgd", "--groups",
                                   "none", "--resize", resize, "--run-dir", resize});
    EXPECT_EQ(large.status, 0) << large.errors;
    const Result result =
        cli::run(scratch_.path(), {"predict", "--model", "resnet8", "--classes", "2", "--weights",
                                   resize + "/model.safetensors", "--input", "set/val", "--output", "o.safetensors"});
    EXPECT_THAT(result.errors, HasSubstr("model.safetensors was trained on images of 64 x 64, resnet8 takes 32 x 32"));
    return text_of("o.safetensors");
  };
  EXPECT_TRUE(answers("64") == answers("90"));
}

TEST_F(ImageFolders, GiveTheSameRunWhateverTheThreadsAndTheParts) {
  ASSERT_EQ(train("one", {"--data-threads", "1", "--prefetch", "1"}).status, 0);
  ASSERT_EQ(train("many", {"--data-threads", "3", "--prefetch", "5"}).status, 0);
  EXPECT_EQ(losses("one"), losses("many"));
}

TEST_F(ImageFolders, WithBrokenFilesAreTrainedOnUntilThereAreTooMany) {
  write("set/train/ant/0.jpg", "<html>404</html>");
  const Result some = train("some", {"--augment", "none"});
  EXPECT_EQ(some.status, 0);
  EXPECT_THAT(some.errors, HasSubstr("prunex: warning: set/train/ant/0.jpg: neither JPEG nor PNG nor WebP"));
  EXPECT_EQ(nlohmann::json::parse(text_of("some/summary.json")).at("images_skipped"), 1);
  const Result none = train("none", {"--augment", "none", "--max-broken", "0"});
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.errors, HasSubstr("broken file number 1, --max-broken allows 0"));
  const Result check = cli::run(scratch_.path(), {"data", "check", "set/train"});
  EXPECT_EQ(check.status, 1);
  EXPECT_EQ(check.output, "set/train/ant/0.jpg: neither JPEG nor PNG nor WebP\n24 images of 2 classes, 1 broken\n");
  const Result both = cli::run(scratch_.path(), {"data", "check", "set"});
  EXPECT_EQ(both.status, 1);
  EXPECT_EQ(both.output, check.output.substr(0, check.output.find('\n') + 1) +
                             "train: 24 images of 2 classes, 1 broken\nval: 8 images of 2 classes, 0 broken\n");
  std::filesystem::create_directory(scratch_ / "set/bus");
  write("set/bus/0.jpg", "");
  EXPECT_THAT(cli::run(scratch_.path(), {"data", "check", "set"}).output, HasSubstr("of 3 classes"));  // beside train
  std::filesystem::remove_all(scratch_ / "set/bus");
  const Result flat = cli::run(scratch_.path(), {"data", "check", "set/train/ant/"});
  EXPECT_EQ(flat.output, "set/train/ant/0.jpg: neither JPEG nor PNG nor WebP\n12 images, 1 broken\n");
  std::filesystem::create_directories(scratch_ / "loose/bee");
  std::filesystem::copy(scratch_ / "set/train/bee/0.jpg", scratch_ / "loose/bee/0.jpg");
  write("loose/0.jpg", "");
  const Result loose = cli::run(scratch_.path(), {"data", "check", "loose"});
  EXPECT_EQ(loose.output, "1 images of 1 classes, 0 broken\n");
  EXPECT_EQ(loose.errors,
            "prunex: warning: loose: not looked at, as in training: 1 images beside the folders of classes\n");
  std::filesystem::rename(scratch_ / "set/val", scratch_ / "tests");
  EXPECT_THAT(cli::run(scratch_.path(), {"data", "check", "set"}).output, HasSubstr("train: 24 images of 2 classes"));
  std::filesystem::create_directory(scratch_ / "odd");
  write("odd/\x1b[31m\n3 images.jpg", "");
  const Result odd = cli::run(scratch_.path(), {"data", "check", "odd"});
  EXPECT_THAT(odd.output, StartsWith("odd/\\x1b[31m\\n3 images.jpg: "));
  write("set/train/ant/0.jpg", data::jpeg_of(data::waves(1, 60000, 3, 0), 1, 60000));
  const Result strip = cli::run(scratch_.path(), {"data", "check", "set/train"});
  EXPECT_THAT(strip.output, HasSubstr("set/train/ant/0.jpg: 1 x 60000 pixels, scaled for tests: "));
}

/// prunex with these arguments, which may take so many MiB for what it writes into: heap, stacks, copies.
Result run_within(int mebibytes, const std::string& directory, const std::vector<std::string>& arguments) {
  std::vector<std::string> words{"/bin/bash", "-c", fmt::format("ulimit -d {}; exec \"$@\"", mebibytes * 1024), "bash"};
  for (const auto& word : prunex(arguments)) words.push_back(word);
  return run_program(directory, words);
}

// 160 images of 9 MB: 1.4 GB. That the limit holds is shown by images that are kept in memory, 0.9 GB of them.
TEST_F(ImageFolders, ThatWouldNotFitIntoMemoryAreTrainedOn) {
  constexpr int kLimit = 640;
  const std::string first = scratch_ / "set/train/ant/large-0.jpg";
  write("set/train/ant/large-0.jpg", data::jpeg_of(data::waves(1500, 2000, 3), 1500, 2000));
  for (int i = 1; i < 160; ++i) {
    std::filesystem::create_hard_link(
        first, scratch_ / fmt::format("set/train/{}/large-{}.jpg", i % 2 == 0 ? "ant" : "bee", i));
  }
  const std::vector<std::string> common{"train",         "--model",     "resnet8",  "--batch-size", "4",
                                        "--local-steps", "23",          "--groups", "none",         "--strategy",
                                        "local_sgd",     "--exchanges", "2",        "--run-dir",    "run"};
  auto folder = common, memory = common;
  folder.insert(folder.end(), {"--dataset", "set", "--image-size", "32", "--data-threads", "2"});
  const Result trained = run_within(kLimit, scratch_.path(), folder);
  EXPECT_EQ(trained.status, 0) << trained.errors;
  EXPECT_EQ(nlohmann::json::parse(text_of("run/summary.json")).at("samples"), 2 * 23 * 4);
  memory.insert(memory.end(), {"--samples", "300000"});
  const Result refused = run_within(kLimit, scratch_.path(), memory);
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.errors, HasSubstr("out of memory: 921.6 MB were wanted"));
}

TEST_F(ImageFolders, AsShardsAreIndexedAndTrainedOn) {
  for (const char* part : {"train", "val"}) {
    for (const char* name : {"ant", "bee"}) {
      for (int i = 0; i < 4; ++i)
        write(fmt::format("set/{}/{}/{}.cls", part, name, i), name == std::string("ant") ? "0" : "1");
      for (int i = 4; i < 12; ++i) std::filesystem::remove(scratch_ / fmt::format("set/{}/{}/{}.jpg", part, name, i));
    }
    ASSERT_EQ(std::system(fmt::format("tar -C '{}/set/{}' --sort=name -cf '{}/{}-0.tar' ant bee", scratch_.path(), part,
                                      scratch_.path(), part)
                              .c_str()),
              0);
  }
  const Result index = cli::run(scratch_.path(), {"data", "index", "train-{0..0}.tar"});
  EXPECT_EQ(index.output, "8 samples in 1 shards, an index beside each\n") << index.errors;
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "train-0.tar.index"));
  EXPECT_EQ(cli::run(scratch_.path(), {"data", "check", "val-0.tar"}).output, "8 images of 2 classes, 0 broken\n");
  const Result result = train("shards", {"--test", "val-{0..0}.tar"}, "train-{0..0}.tar");
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(cli::run(scratch_.path(), {"data", "index", "set"}).status, 2);
}

TEST_F(ImageFolders, ThatChangedAreNotResumed) {
  ASSERT_EQ(train("run", {"--checkpoint-every", "1"}).status, 0);
  const auto before = losses("run");
  const std::vector<std::string> resume{"train", "--resume", "run", "--resume-exchange", "1"};
  std::filesystem::remove(scratch_ / "run/summary.json");
  ASSERT_EQ(cli::run(scratch_.path(), resume).status, 0);
  EXPECT_EQ(losses("run"), before);
  std::filesystem::remove(scratch_ / "run/summary.json");
  std::filesystem::rename(scratch_ / "set/train/ant/0.jpg", scratch_ / "set/train/ant/x.jpg");
  const Result changed = cli::run(scratch_.path(), resume);
  EXPECT_EQ(changed.status, 2);
  EXPECT_THAT(changed.errors, HasSubstr("--dataset set: the images are not those with which the run began"));
}

/// A preset for clusters, on two ranks of this machine and images of 32 pixels.
std::vector<std::string> preset(const std::string& name, const std::vector<std::string>& more) {
  std::vector<std::string> words{"train",
                                 "--config",
                                 PRUNEX_SOURCE_DIR "/examples/" + name + ".toml",
                                 "--dataset",
                                 "set",
                                 "--nodes",
                                 "2",
                                 "--ranks-per-node",
                                 "1",
                                 "--device",
                                 "cpu",
                                 "--precision",
                                 "fp32",
                                 "--batch-size",
                                 "2",
                                 "--exchanges",
                                 "4",
                                 "--local-steps",
                                 "1",
                                 "--run-dir",
                                 name};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_F(ImageFolders, TrainByThePresetOfResnet50) {
  const Result result =
      cli::run(scratch_.path(),
               preset("imagenet_resnet50", {"--augment", "resized-crop:32,flip", "--lr-milestones", "0.2,0.4"}));
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "imagenet_resnet50/model.pt2"));
}

TEST_F(ImageFolders, TrainByThePresetOfVitS) {
  PRUNEX_RUN_PYTHON("tests/cli/vit.py", scratch_ / "vit_s_16.pt2");
  const Result result =
      cli::run(scratch_.path(), preset("imagenet_vit_s", {"--augment", "resized-crop:32,flip,randaugment:2:10",
                                                          "--warmup-steps", "1", "--round-to", "1"}));
  ASSERT_EQ(result.status, 0) << result.errors;
  const auto summary = nlohmann::json::parse(text_of("imagenet_vit_s/summary.json"));
  EXPECT_EQ(summary.at("accuracy"), summary.at("accuracy_compact"));
  EXPECT_GT(summary.at("units_removed"), 0);
}

}  // namespace
}  // namespace prunex::cli
