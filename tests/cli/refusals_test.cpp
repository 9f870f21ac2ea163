// What a user gets for a mistake: exit code 2 for the command line, 1 for what fails while running, one line on
// standard error, nothing on standard output, no run directory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "tests/cli/command.h"
#include "tests/report/run_files.h"
#include "tests/scratch.h"

namespace prunex::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class Refusals : public testing::Test {
 protected:
  void refused(int status, const std::vector<std::string>& arguments, const std::vector<std::string>& words) {
    const Result result = run(scratch_.path(), arguments);
    SCOPED_TRACE(testing::PrintToString(arguments) + ": " + result.errors);
    EXPECT_EQ(result.status, status);
    EXPECT_EQ(result.output, "");
    EXPECT_THAT(result.errors, StartsWith("prunex: "));
    EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1);
    EXPECT_EQ(result.errors.back(), '\n');
    for (const auto& word : words) EXPECT_THAT(result.errors, HasSubstr(word));
    EXPECT_FALSE(std::filesystem::exists(scratch_ / "runs"));
  }
  void write(const std::string& name, const std::string& bytes) {
    std::filesystem::create_directories(std::filesystem::path(scratch_ / name).parent_path());
    std::ofstream(scratch_ / name, std::ios::binary) << bytes;
  }
  /// prunex train on a small problem, with more options or others.
  static std::vector<std::string> train(const std::vector<std::string>& more) {
    const std::map<std::string, std::string> small{{"--samples", "40"},
                                                   {"--model", "resnet8"},
                                                   {"--batch-size", "10"},
                                                   {"--exchanges", "1"},
                                                   {"--local-steps", "1"}};
    std::vector<std::string> arguments{"train", "--quiet"};
    for (const auto& [option, value] : small) {
      const bool of_another_set = option == "--samples" && std::find(more.begin(), more.end(), "cifar10") != more.end();
      if (of_another_set || std::find(more.begin(), more.end(), option) != more.end()) continue;
      arguments.insert(arguments.end(), {option, value});
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  const tests::Scratch scratch_;
};

TEST_F(Refusals, OfDevicesThatAreNotThere) {
  refused(2, train({"--device", "tpu"}), {"--device", "tpu", "cuda"});
  refused(2, train({"--no-cuda-graphs"}), {"--no-cuda-graphs: a CPU has no CUDA graphs"});
  refused(2, train({"--precision", "tf32"}), {"--precision: got tf32", "--device cpu", "wanted auto, fp32 or bf16"});
  if (std::filesystem::exists("/dev/nvidia0")) return;
  refused(2, train({"--device", "cuda"}), {"--device cuda: "});
  refused(2, train({"--device", "cuda", "--nodes", "2"}), {"--device cuda: "});
  refused(2, train({"--device", "cuda", "--nodes", "2", "--elastic"}), {"--device cuda: "});
  refused(2, {"bench", "all_reduce", "--nodes", "2", "--device", "cuda"}, {"--device cuda: "});
  refused(2, {"eval", "--model", "a.pt2", "--device", "cuda"}, {"--device cuda: "});
  refused(2, {"prune", "--model", "resnet8", "--ratio", "0.5", "--device", "cuda", "--output", "a"},
          {"--device cuda: "});
  refused(2, {"predict", "--model", "resnet8", "--input", "a.safetensors", "--output", "b", "--device", "cuda"},
          {"--device cuda: "});
}

TEST_F(Refusals, OfCommandsAndOptionsThatDoNotExist) {
  refused(2, {}, {"no command", "--help"});
  refused(2, {"trian"}, {"trian"});
  refused(2, {"train", "--learning-rate", "1"}, {"--learning-rate"});
  refused(2, {"train", "more"}, {"more"});
  refused(2, {"graph"}, {"--model"});
}

TEST_F(Refusals, OfAugmentationThatIsNone) {
  refused(2, train({"--augment", "crop:4,flop"}), {"--augment", "'flop'", "wanted none, or of crop:PIXELS"});
  refused(2, train({"--augment", "erase:2"}), {"--augment", "got 'erase:2', wanted a share in (0, 1]"});
  refused(2, train({"--augment", "resized-crop:224"}), {"--augment: got resized-crop:224", "wanted resized-crop:32"});
  refused(2, {"eval", "--model", "net.pt2", "--dataset", "synthetic", "--augment", "flip"}, {"--augment"});
}

TEST_F(Refusals, OfTeachersThatTeachNothing) {
  refused(2, train({"--teacher", "net"}), {"--teacher: got 'net', wanted one of none, whole, FILE.pt2"});
  refused(2, train({"--teacher", "missing.pt2"}), {"--teacher: missing.pt2: no such file in /"});
  refused(2, train({"--model", "missing.pt2"}), {"--model: missing.pt2: no such file in /"});
  refused(2, train({"--weights", "/missing.safetensors"}), {"--weights: /missing.safetensors: no such file"});
  refused(2, train({"--teacher", "whole"}), {"--teacher: got whole", "--prune-to", "wanted FILE.pt2"});
  refused(2, train({"--teacher-share", "0.3"}), {"--teacher-share: there is no --teacher"});
}

TEST_F(Refusals, OfNumbersOutOfRange) {
  refused(2, train({"--keep", "0"}), {"--keep", "0", "(0, 1]"});
  refused(2, train({"--keep", "1.5"}), {"--keep", "1.5", "(0, 1]"});
  refused(2, train({"--nodes", "0"}), {"--nodes", "0", "1 or more"});
  refused(2, train({"--ranks-per-node", "2,1"}), {"--ranks-per-node", "2,1", "1 nodes", "one per node"});
  refused(2, train({"--nodes", "2", "--ranks-per-node", "2,x"}), {"--ranks-per-node", "'2,x'", "2,1"});
  refused(2, train({"--nodes", "2", "--ranks-per-node", "2,0"}), {"--ranks-per-node", "0", "1 or more"});
  refused(2, train({"--nodes", "3", "--sites", "2"}), {"--sites", "2", "3 nodes"});
  refused(2, train({"--nodes", "50000"}), {"--nodes", "50000 ranks", "at most", "torchrun"});
  refused(2, {"bench", "all_reduce", "--nodes", "50000"}, {"--nodes", "50000 ranks", "at most", "torchrun"});
  refused(2, train({"--lr", "nan"}), {"--lr", "nan"});
  refused(2, train({"--lr", "fast"}), {"--lr: got 'fast', wanted a number"});
  refused(2, train({"--batch-size", "10", "--batch-size", "2.5"}), {"--batch-size: got '2.5', wanted a whole number"});
  refused(2, train({"--seed", "-1"}), {"--seed: got '-1', wanted a whole number from 0"});
  refused(2, train({"--seed", "99999999999999999999"}), {"--seed: got '9999", "whole number from 0"});
  for (const char* option : {"--comm-timeout", "--heartbeat-timeout"}) {
    refused(2, train({option, "inf"}), {option + std::string(": got 'inf', wanted a number")});
  }
  const std::vector<std::pair<std::string, std::string>> times{
      {"--join-timeout", "1e300"}, {"--comm-timeout", "1e300"}, {"--heartbeat-timeout", "1e-9"}};
  for (const auto& [option, value] : times) {
    refused(2, train({option, value}), {option + ": got ", "wanted seconds from 0.001 to 1e6"});
  }
  refused(2, train({"--comm-timeout", "0"}), {"--comm-timeout: got 0, wanted seconds from 0.001 to 1e6"});
  refused(2, {"bench", "all_reduce", "--join-timeout", "inf"}, {"--join-timeout: got 'inf', wanted a number"});
  refused(2, {"bench", "all_reduce", "-b", "4K", "-e", "1K"}, {"-b: got 4K", "at most -e, 1K"});
  refused(2, train({"--penalty", "none"}), {"--penalty", "none", "kappa"});
  for (const char* word : {"often", "-1", "5 min", "0s", "nanh"}) {
    refused(2, train({"--checkpoint-every", word}), {"--checkpoint-every: got '" + std::string(word), "10min"});
  }
  refused(2, train({"--prune-end", "soon"}), {"--prune-end", "soon", "auto"});
  refused(2, train({"--groups", "filters"}), {"--groups", "filters", "coupled"});
  refused(2, train({"--batch-size", "41"}), {"--batch-size"});
}

TEST_F(Refusals, OfCutsThatCannotBeBeforeAnythingStarts) {
  for (const std::string check : {"--quiet", "--check"}) {
    refused(2, train({check, "--strategy", "local_sgd", "--prune-to", "rato=0.5"}),
            {"--prune-to rato: got 'rato'", "ratio"});
    refused(2, train({check, "--strategy", "local_sgd", "--prune-to", "ratio"}),
            {"--prune-to: got 'ratio'", "speed-up=X"});
    refused(2, train({check, "--strategy", "local_sgd", "--prune-to", "speed-up=1000"}),
            {"--prune-to", "MACs are left"});
    refused(2, train({check, "--strategy", "local_sgd", "--prune-to", "ratio=0.5", "--prune-steps", "5"}),
            {"--prune-steps"});
  }
}

TEST_F(Refusals, OfPlansThatCannotPruneAsAsked) {
  refused(2, train({"--check", "--prune-start", "5"}), {"--prune-start: got 5, wanted at most 1"});
  refused(2, train({"--freeze-after", "9", "--exchanges", "8"}), {"--freeze-after: got 9, wanted at most 8", "never"});
  refused(2, train({"--check", "--round-to", "128", "--exchanges", "8"}), {"--round-to: got 128", "has 64 units"});
}

TEST_F(Refusals, OfOneFileForTwoPurposes) {
  write("x.safetensors", "data");
  refused(2, {"predict", "--model", "resnet8", "--input", "x.safetensors", "--output", "./x.safetensors"},
          {"--output: got ./x.safetensors, which is --input"});
  refused(2, {"report", ".", "--output", "x.html", "--json", "x.html"}, {"--json: got x.html, which is --output"});
  refused(2, {"report", ".", "--json", "./report.html"}, {"--json: got ./report.html, which is --output"});
  refused(2, {"eval", "--model", "n.pt2", "--json", "q", "--answers", scratch_ / "q"}, {"which is --json"});
}

TEST_F(Refusals, OfOutputsBeforeTheWork) {
  write("n.pt2", "a program");
  write("sub/0.jpg", "an image");
  const auto eval = [](const std::string& json) {
    return std::vector<std::string>{"eval", "--model", "n.pt2", "--json", json};
  };
  refused(2, eval("sub"), {"--json: sub is a folder, wanted a file in one"});
  refused(2, eval("n.pt2/q.json"), {"--json n.pt2/q.json: n.pt2 is no folder"});
  refused(2, {"graph", "--model", "n.pt2", "--save", "0.jpg"}, {"--save: got 0.jpg, which is a name for images"});
  refused(2, eval("none/q.json"), {"--json none/q.json: none is no folder"});
  for (const std::string name : {"sub/0.jpg", "0.tar", "test_batch.bin", "n.safetensors", "other.pt2", "n.toml"}) {
    refused(2, eval(name), {"--json: got " + name + ", which is a name for "});
  }
  refused(2, {"predict", "--model", "resnet8", "--input", "sub", "--output", "none/y"},
          {"--output none/y: none is no folder"});
  refused(2, {"predict", "--model", "resnet8", "--input", "x", "--output", "y"}, {"--input: x: no such file"});
  tests::write_run(scratch_ / "run", {});
  refused(2, {"plan", "--from", "run", "--output", "plan.png"}, {"--output: got plan.png, which is a name for images"});
}

TEST_F(Refusals, OfReportsInPlaceOfWhatTheyAreMadeOf) {
  tests::write_run(scratch_ / "run", {});
  tests::write_run(scratch_ / "all/a/0", {});
  write("all/compare.json", R"({"pilots": [], "runs": [{"name": "a", "directory": "a/0"}]})");
  std::filesystem::create_symlink("run/summary.json", scratch_ / "link.json");
  const std::string reason = ", which is a record of a run or comparison: wanted another file";
  refused(2, {"report", "run", "--output", "run/summary.json"}, {"--output: got run/summary.json" + reason});
  refused(2, {"report", "run", "--csv", "./run/metrics.jsonl"}, {"--csv: got ./run/metrics.jsonl" + reason});
  refused(2, {"report", "run", "--json", "link.json"}, {"--json: got link.json" + reason});
  refused(2, {"report", "all", "--json", "all/compare.json"}, {"--json: got all/compare.json" + reason});
  refused(2, {"report", "all", "--csv", "all/a/0/config.toml"}, {"--csv: got all/a/0/config.toml" + reason});
  refused(2, {"plan", "--from", "run", "--json", "run/summary.json"}, {"--json: got run/summary.json" + reason});
  for (int again = 0; again < 2; ++again) {
    const Result beside =
        run(scratch_.path(), {"report", "run", "--output", "run/page.html", "--json", "summary.json"});
    EXPECT_EQ(beside.status, 0) << beside.errors;
  }
}

TEST_F(Refusals, OfAResumeFromNowhere) {
  refused(2, train({"--resume", ""}), {"--resume: got ''"});
  refused(2, train({"--resume-exchange", "3"}), {"--resume-exchange: needs --resume"});
}

TEST_F(Refusals, OfModels) {
  refused(2, train({"--model", "resnet9"}), {"--model: got 'resnet9'", "resnet8", ".pt2"});
  write("net.pt2", "not a program");
  refused(1, train({"--model", "net.pt2"}), {"net.pt2", "torch.export.save"});
  refused(1, {"graph", "--model", "net.pt2"}, {"net.pt2", "torch.export.save"});
  refused(1, {"eval", "--model", "net.pt2", "--samples", "40"}, {"net.pt2", "torch.export.save"});
  refused(2, {"graph", "--model", "none.pt2"}, {"none.pt2"});
  refused(2, {"graph", "--model", "resnet18", "--input", "3x3"}, {"--input", "3x3"});
  write("weights.safetensors", "no header");
  refused(1, train({"--weights", "weights.safetensors"}), {"weights.safetensors"});
}

TEST_F(Refusals, OfData) {
  refused(2, train({"--dataset", "mnist"}), {"--dataset", "mnist", "cifar10"});
  refused(2, train({"--dataset", "cifar10", "--data-dir", "nowhere"}), {"--data-dir", "nowhere", "test_batch.bin"});
  for (const char* file : {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"}) {
    write(std::string("cifar/") + file + ".bin", std::string(3073, '\1'));
  }
  write("cifar/test_batch.bin", std::string(3000, '\1'));
  refused(1, train({"--dataset", "cifar10", "--data-dir", "cifar"}), {"test_batch.bin", "3073"});
}

TEST_F(Refusals, OfARunDirectoryThatIsNotEmpty) {
  write("mine/precious", "text");
  refused(2, train({"--run-dir", "mine"}), {"--run-dir mine", "not empty"});
  refused(2, train({"--run-dir", "mine/precious"}), {"--run-dir mine/precious", "a file"});
  refused(2, train({"--run-dir", "mine", "--nodes", "2"}), {"--run-dir mine", "not empty"});
}

TEST_F(Refusals, OfConfigurationFiles) {
  refused(2, train({"--config", "none.toml"}), {"--config", "none.toml"});
  write("key.toml", "lr = 0.1\nlearning-rate = 0.2\n");
  refused(2, train({"--config", "key.toml"}), {"key.toml", "'learning-rate'"});
  write("section.toml", "[optimizer]\nlr = 0.1\n");
  refused(2, train({"--config", "section.toml"}), {"section.toml", "optimizer"});
  write("value.toml", "lr = \"fast\"\n");
  refused(2, train({"--config", "value.toml"}), {"--lr", "fast"});
  write("range.toml", "keep = 1.5\n");
  refused(2, train({"--config", "range.toml"}), {"--keep", "1.5"});
  std::filesystem::create_directory(scratch_ / "folder");
  refused(2, train({"--config", "folder"}), {"--config: folder: is a directory"});
  write("place.toml", "run-dir = \"here\"\n");
  refused(2, train({"--config", "place.toml"}), {"place.toml", "run-dir"});
}

}  // namespace
}  // namespace prunex::cli
