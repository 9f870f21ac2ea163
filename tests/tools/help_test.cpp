// Help, completion and manual page, all made from the options themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "prunex/train/options.h"
#include "report/tasks.h"
#include "tests/scratch.h"
#include "tests/texts.h"
#include "tests/tools/in_process.h"
#include "tools/prunex/help.h"

namespace prunex::tools {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using tests::lines_of;
using tests::write_text;

/// What a shell prints, standard error included.
std::string shell(const std::string& command) {
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::string text;
  for (int byte = 0; (byte = std::fgetc(pipe)) != EOF;) text += static_cast<char>(byte);
  EXPECT_EQ(pclose(pipe), 0) << text;
  return text;
}

TEST(Help, FitsATerminal) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--help"},
                                                {"--help-all"},
                                                {"train", "--help"},
                                                {"train", "--help-all"},
                                                {"prune", "--help"},
                                                {"bench", "all_reduce", "--help"},
                                                {"compare", "--help"},
                                                {"plan", "--help"},
                                                {"eval", "-h"}}) {
    const Result help = run(words);
    EXPECT_EQ(help.status, 0);
    EXPECT_EQ(help.errors, "");
    for (const auto& line : lines_of(help.output)) EXPECT_LE(line.size(), kTerminalWidth) << line;
  }
}

TEST(Help, ShowsWhatPeopleUseFirstAndTheRestByTopic) {
  const auto app = tools::app();
  const auto* train = app->get_subcommand("train");
  const std::string first = run({"train", "--help"}).output, all = run({"train", "--help-all"}).output;
  size_t in_first = 0;
  for (const auto* option : train->get_options(nullptr)) {
    const std::string heading = option->get_name(false, true);
    EXPECT_THAT(all, HasSubstr("  " + heading)) << option->get_name();
    in_first += first.find("\n  " + heading) != std::string::npos ? 1 : 0;
  }
  EXPECT_GE(in_first, 25);
  EXPECT_LE(in_first, 32);
  EXPECT_THAT(first, HasSubstr("more: prunex train --help-all"));
  EXPECT_THAT(first, HasSubstr("Examples:\n  prunex train"));
  EXPECT_THAT(first, Not(HasSubstr("--powersgd-rank")));
  EXPECT_THAT(all, HasSubstr("\nStrategy:\n"));
}

/// Each line of the examples is a command line whose options exist.
TEST(Help, GivesExamplesThatParse) {
  size_t examples = 0;
  for (const auto& line : lines_of(tools::app()->get_subcommand("train")->get_footer())) {
    if (!line.starts_with("  prunex ")) continue;
    std::istringstream stream(line.substr(9));
    std::vector<std::string> words{std::istream_iterator<std::string>(stream), {}};
    words.push_back("--help");
    EXPECT_EQ(run(words).status, 0) << line;
    ++examples;
  }
  EXPECT_GT(examples, 3);
}

TEST(OptionsPage, IsWhatTheDocumentationHas) {
  std::ifstream file(PRUNEX_SOURCE_DIR "/docs/options.md");
  const std::string written{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(written, run({"options"}).output) << "prunex options > docs/options.md";
}

/// The report is of a room without torch, and has a list of its own.
TEST(OptionList, AgreesWithTheReportAboutWhatMakesAVariant) {
  train::TrainOptions options;
  const text::OptionList list = train::describe(options);
  for (const auto& option : list.all()) {
    const report::Run run{.directory = "run", .options = {{option.name, "x"}}};
    EXPECT_EQ(report::identity(run).contains(option.name), option.is_identity) << option.name;
  }
}

TEST(Version, NamesTheCommitAndLibTorch) {
  EXPECT_THAT(
      run({"--version"}).output,
      testing::MatchesRegex("prunex [0-9.]+ \\(commit ([0-9a-f]{10,}(-dirty)?|unknown)\\), LibTorch [0-9.]+.*\n"));
}

class Completion : public testing::Test {
 protected:
  Completion() { write_text(scratch_ / "prunex.bash", run({"completion", "bash"}).output); }
  /// What bash offers behind these words, the last of which is being typed.
  std::vector<std::string> of(const std::vector<std::string>& words) const {
    std::string quoted;
    for (const auto& word : words) quoted += " '" + word + "'";
    return lines_of(shell("cd " + scratch_.path() + " && bash -c '. ./prunex.bash; COMP_WORDS=(prunex " +
                          replaced(quoted) + "); COMP_CWORD=" + std::to_string(words.size()) +
                          "; _prunex; for w in \"${COMPREPLY[@]}\"; do echo \"$w\"; done'"));
  }
  static std::string replaced(std::string text) {
    for (char& c : text) c = c == '\'' ? '"' : c;
    return text;
  }
  const tests::Scratch scratch_;
};

TEST_F(Completion, OffersCommandsAndOptions) {
  EXPECT_THAT(of({"tr"}), ElementsAre("train"));
  EXPECT_THAT(of({"bench", ""}), Contains("all_reduce"));
  EXPECT_THAT(of({"bench", "all_reduce", "--fa"}), ElementsAre("--factor"));
  EXPECT_THAT(of({"train", "--local"}), testing::UnorderedElementsAre("--local-steps", "--local-after"));
  EXPECT_THAT(of({"train", "--lr", "0.1", "--epo"}), ElementsAre("--epochs"));
}

TEST_F(Completion, OffersTheWordsOfAnOption) {
  EXPECT_THAT(of({"train", "--precision", ""}), ElementsAre("auto", "fp32", "tf32", "bf16"));
  EXPECT_THAT(of({"train", "--precision", "=", "b"}), ElementsAre("bf16"));
  EXPECT_THAT(of({"train", "--precision", "="}), ElementsAre("auto", "fp32", "tf32", "bf16"));
  EXPECT_THAT(of({"train", "--lr", ""}), IsEmpty());
}

TEST_F(Completion, OffersFilesWhereOnesAreWanted) {
  write_text(scratch_ / "net.pt2", "");
  EXPECT_THAT(of({"train", "--model", "ne"}), ElementsAre("net.pt2"));
  EXPECT_THAT(of({"train", "--model", "resnet2"}), ElementsAre("resnet20"));
  EXPECT_THAT(of({"compare", "net"}), ElementsAre("net.pt2"));
}

TEST(Help, EveryCommandTakesQuiet) {
  const auto app = tools::app();
  std::vector<const CLI::App*> commands = std::as_const(*app).get_subcommands(nullptr);
  for (size_t i = 0; i < commands.size(); ++i) {
    const auto within = commands[i]->get_subcommands(nullptr);
    commands.insert(commands.end(), within.begin(), within.end());
    if (commands[i]->get_group().empty() || !within.empty()) continue;
    EXPECT_NE(commands[i]->get_option_no_throw("--quiet"), nullptr) << commands[i]->get_name();
  }
  EXPECT_GE(commands.size(), 12U);
}

TEST(ManPage, HoldsEveryOptionOfEveryCommand) {
  const Result page = run({"man"});
  EXPECT_EQ(page.status, 0);
  const auto app = tools::app();
  for (const auto* command : std::as_const(*app).get_subcommands(nullptr)) {
    if (command->get_group().empty()) continue;
    EXPECT_THAT(page.output, HasSubstr(".SH \"prunex " + command->get_name() + "\"\n"));
    for (const auto* option : command->get_options(nullptr)) {
      std::string name = option->get_name();
      for (size_t at = 0; (at = name.find('-', at)) != std::string::npos; at += 2) name.insert(at, "\\");
      EXPECT_THAT(page.output, HasSubstr(name));
    }
  }
}

TEST(ManPage, IsRoffOfKnownRequestsOnly) {
  const std::vector<std::string> known{".TH", ".SH", ".TP", ".B", ".I", ".RI", ".PP", ".nf", ".fi"};
  const std::string page = run({"man"}).output;
  for (const auto& line : lines_of(page)) {
    EXPECT_FALSE(line.starts_with('\'')) << line;
    if (!line.starts_with('.')) continue;
    EXPECT_THAT(known, Contains(line.substr(0, line.find(' ')))) << line;
  }
  if (std::filesystem::exists("/usr/bin/groff")) {
    const tests::Scratch scratch;
    write_text(scratch / "prunex.1", page);
    const std::string shown = shell("groff -man -ww -Tascii -P-cbou " + (scratch / "prunex.1"));
    EXPECT_THAT(shown, HasSubstr("EXIT STATUS"));
    EXPECT_THAT(shown, Not(HasSubstr("warning")));
  }
}

}  // namespace
}  // namespace prunex::tools
