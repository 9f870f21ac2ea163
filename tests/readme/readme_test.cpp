// README's commands, run as they are printed but for what known_blocks.cpp changes: the same files must come out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/cli/command.h"
#include "tests/image_files.h"
#include "tests/listening.h"
#include "tests/python.h"
#include "tests/readme/blocks.h"
#include "tests/readme/known_blocks.h"
#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::readme {
namespace {

namespace fs = std::filesystem;

using testing::IsSupersetOf;
using testing::UnorderedElementsAreArray;
using tests::text_of;

std::string document(const std::string& file) {
  return text_of(PRUNEX_SOURCE_DIR "/" + file);
}

bool is_known(const std::vector<KnownBlock>& known, const std::string& file, const std::string& text) {
  return std::any_of(known.begin(), known.end(),
                     [&](const KnownBlock& entry) { return entry.file == file && text.starts_with(entry.start); });
}

/// A folder that looks like a checkout to the commands, with stand-ins for the data.
class Reader {
 public:
  Reader() {
    fs::create_directories(folder_ / "bin");
    fs::create_directories(folder_ / "build");
    fs::create_directories(folder_ / "compare");
    fs::create_directories(folder_ / "scripts");
    fs::create_symlink(PRUNEX_BINARY, folder_ / "bin/prunex");
    fs::create_symlink(fs::path(PRUNEX_BINARY).parent_path(), folder_ / "build/release");
    fs::create_symlink(PRUNEX_SOURCE_DIR "/examples", folder_ / "examples");
    fs::create_directory_symlink(PRUNEX_SOURCE_DIR "/compare/results", folder_ / "compare/results");
    fs::copy(PRUNEX_SOURCE_DIR "/scripts/demo.sh", folder_ / "scripts/demo.sh");
    tests::write_tensors(folder_ / "pixels.safetensors", {{"input", "U8", {2, 3, 32, 32}, tests::pixels(2, 2)}});
  }

  std::string operator/(const std::string& name) const { return folder_ / name; }

  /// Runs commands in bash, or Python; torchrun for two machines. Returns the standard output.
  std::string run(const std::string& language, const std::string& text) {
    if (language == "python") {
      std::ofstream(folder_ / "block.py") << text;
      return bash("python -W ignore block.py");
    }
    if (!text.starts_with("torchrun")) return bash(text);
    return bash("( " + replaced(text, "--node-rank 0", "--node-rank 1") + " ) & other=$!\n" + text + "wait $other");
  }

 private:
  std::string bash(const std::string& commands) {
    std::ofstream(folder_ / "block.sh") << "set -euo pipefail\n"
                                        << "export PATH='" << folder_ / "bin"
                                        << "':'" << fs::path(PRUNEX_TEST_PYTHON).parent_path().string()
                                        << "':\"$PATH\"\n"
                                        << "export PRUNEX=prunex HOME=$PWD OMP_NUM_THREADS=1 PORT="
                                        << tests::free_port(15000) << "\n"
                                        << commands << "\n";
    const cli::Result result = cli::run_program(folder_.path(), {"/bin/bash", "block.sh"});
    EXPECT_EQ(result.status, 0) << commands << "\n" << result.output << result.errors;
    return result.output;
  }

  const tests::Scratch folder_;
};

std::string changed(const KnownBlock& entry, std::string text) {
  for (const auto& [from, to] : entry.changes) text = replaced(std::move(text), from, to);
  return text;
}

void run(Reader& reader, const KnownBlock& entry, const std::string& language, const std::string& text) {
  const std::string output = reader.run(language, changed(entry, text));
  for (const auto& words : entry.prints) EXPECT_THAT(output, testing::HasSubstr(words));
}

void run_block(Reader& reader, const KnownBlock& entry) {
  SCOPED_TRACE(entry.file + ": " + entry.start);
  for (const Block& block : blocks_of(document(entry.file))) {
    if (!block.text.starts_with(entry.start)) continue;
    if (entry.why_not.empty()) run(reader, entry, block.language, block.text);
    return;
  }
  ADD_FAILURE() << "is not there any more";
}

void run_span(Reader& reader, const KnownBlock& entry) {
  if (!entry.why_not.empty()) return;
  SCOPED_TRACE(entry.start);
  for (const std::string& span : code_spans_of(document(entry.file))) {
    if (!span.starts_with(entry.start)) continue;
    run(reader, entry, "", span);
    return;
  }
  ADD_FAILURE() << "is not there any more";
}

/// docs/report.md's example of a comparison, with fewer and shorter runs.
void write_comparison(const std::string& path) {
  for (const Block& block : blocks_of(document("docs/report.md"))) {
    if (block.language != "toml") continue;
    std::string text = replaced(block.text, "seeds = [0, 1, 2, 3]", "seeds = [0]");
    text = replaced(text, "epochs = 8",
                    "samples = 80\nmodel = \"resnet8\"\nexchanges = 4\nlocal-steps = 2\nbatch-size = 8");
    text = replaced(replaced(text, "epochs = 1\n", "exchanges = 2\n"), "validation = 1000", "validation = 20");
    text = replaced(replaced(text, "[0, 1]", "[0]"), "seeds = [1000, 1001]", "seeds = [1000]");
    std::ofstream(path) << replaced(text, "[0.05, 0.1, 0.2]", "[0.05, 0.1]");
  }
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string() + (entry.is_directory() ? "/" : ""));
  }
  return names;
}

TEST(Readme, HasNoCommandThatThisTestDoesNotKnow) {
  const std::set<std::string> languages{"", "python", "cmake"};
  for (const Block& block : blocks_of(document("README.md"))) {
    EXPECT_TRUE(languages.contains(block.language)) << block.language;
    EXPECT_TRUE(is_known(known_blocks(), "README.md", block.text)) << block.text;
  }
  for (const std::string file : {"README.md", "docs/use.md"}) {
    for (const std::string& span : code_spans_of(document(file))) {
      const bool command = span.starts_with("prunex ") || span.starts_with("build/");
      if (!command) continue;
      EXPECT_TRUE(is_known(known_spans(), file, span)) << file << ": " << span;
    }
  }
}

TEST(Readme, AndThePagesHaveNoCommandThatThisTestDoesNotKnow) {
  const std::vector<std::string> programs{"prunex ",  "torchrun ", "srun ",   "mpirun ", "make ", "cmake ",
                                          "scripts/", "bench/",    "python ", "pip ",    ".venv/"};
  for (const auto& page : fs::directory_iterator(PRUNEX_SOURCE_DIR "/docs")) {
    const std::string file = "docs/" + page.path().filename().string();
    for (const Block& block : blocks_of(document(file))) {
      const bool command = block.language.empty() &&
                           std::any_of(programs.begin(), programs.end(),
                                       [&](const std::string& program) { return block.text.starts_with(program); });
      if (!command) continue;
      EXPECT_TRUE(is_known(known_blocks(), file, block.text)) << file << ":\n" << block.text;
    }
  }
}

TEST(Readme, DoesWhatItSays) {
  Reader reader;
  PRUNEX_RUN_PYTHON("tests/readme/stand_ins.py", reader / "");
  write_comparison(reader / "compare/quick.toml");
  for (const KnownBlock& entry : known_blocks()) run_block(reader, entry);
  fs::copy(reader / "runs/own/config.toml", reader / "again.toml");
  for (const KnownBlock& entry : known_spans()) run_span(reader, entry);

  EXPECT_THAT(names_in(reader / "runs"), IsSupersetOf({"demo-dense/", "demo-prunex/", "synthetic-net-hsadmm-1/"}));
  EXPECT_THAT(names_in(reader / "small"),
              UnorderedElementsAreArray(first_column(document("docs/pruning.md"), "# Pruning")));
  EXPECT_THAT(names_in(reader / "runs/whole"),
              UnorderedElementsAreArray(first_column(document("docs/use.md"), "## Run directory")));
  for (const char* file : {"report.html", "numbers.json", "whole.html", "o.safetensors"}) {
    EXPECT_TRUE(fs::exists(reader / file)) << file;
  }
}

TEST(Blocks, AreFoundWithTheirLanguages) {
  const std::string text = "a `prunex\nx`\n```python\nimport x\n```\n`b` and\n```\nprunex `y`\n```\n";
  const auto blocks = blocks_of(text);
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[0].language, "python");
  EXPECT_EQ(blocks[1].text, "prunex `y`\n");
  EXPECT_THAT(code_spans_of(text), testing::ElementsAre("prunex x", "b"));
  EXPECT_THROW(replaced("abc", "d", "e"), std::runtime_error);
}

}  // namespace
}  // namespace prunex::readme
