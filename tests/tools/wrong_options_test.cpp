// Every wrong value of every option: exit code 2 and one line on standard error that names the option and what was got.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tests/tools/in_process.h"
#include "tools/prunex/command_line.h"
#include "tools/prunex/help.h"

namespace prunex::tools {
namespace {

/// Values that no option of the type takes.
Words wrong_values(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  Words wrong;
  if (!words_of(option).empty()) wrong = {"", "word", "nan", "-1", "1e300", words_of(option).front() + "x"};
  const bool whole = type.starts_with("INT") || type.starts_with("UINT");
  if (whole || type.starts_with("FLOAT"))
    wrong = {"", "word", "nan", "inf", "-inf", "0,1", "3x", "0x10", "1e400", " 1", "1\n2"};
  if (whole) wrong.insert(wrong.end(), {"2.5", "1e300", "99999999999999999999", "-99999999999999999999"});
  if (option.get_delimiter() != '\0') std::erase(wrong, "0,1");
  return wrong;
}

/// What a message shows of a value.
std::string shown(std::string value) {
  const size_t newline = value.find('\n');
  if (newline != std::string::npos) value.replace(newline, 1, "\\n");
  return "'" + value + "'";
}

/// Every option of the command, or of the one below it.
std::vector<const CLI::Option*> options_of(const CLI::App& command) {
  const auto below = command.get_subcommands(nullptr);
  return (below.empty() ? command : *below.front()).get_options(nullptr);
}

class WrongOptions : public testing::TestWithParam<const char*> {
 protected:
  const std::unique_ptr<CLI::App> app_ = app();
  const std::vector<const CLI::Option*> options_ = options_of(*app_->get_subcommand(GetParam()));
};

TEST_P(WrongOptions, OfATypeAreNamedWithWhatWasGot) {
  size_t cases = 0;
  for (const auto* option : options_) {
    const std::string name = option->get_name();
    for (const auto& value : wrong_values(*option)) {
      refused(with(without(command_line(GetParam()), name), {name, value}),
              {name + ": got " + shown(value), "wanted "});
      ++cases;
    }
  }
  EXPECT_TRUE(cases > 0 || GetParam() == std::string("report"));
}

TEST_P(WrongOptions, WithoutAValueAreNamed) {
  for (const auto* option : options_) {
    if (!option->nonpositional() || option->get_items_expected_max() == 0) continue;
    const std::string name = option->get_name();
    refused(with(without(command_line(GetParam()), name), {name}), {name + ": got nothing, wanted "});
    refused(with(without(command_line(GetParam()), name), {name, ""}), {name + ": got '', wanted "});
    refused(with(without(command_line(GetParam()), name), {name + "=", "--quiet"}), {name + ": got '', wanted "});
  }
}

TEST_P(WrongOptions, ThatAreFlagsTakeTrueOrFalse) {
  for (const auto* option : options_) {
    if (option->get_items_expected_max() > 0 || !option->get_configurable()) continue;
    refused(with(command_line(GetParam()), {option->get_name() + "=maybe"}), {option->get_name(), "'maybe'"});
  }
}

TEST_P(WrongOptions, ThatDoNotExistAreNamedWithWhatMayHaveBeenMeant) {
  for (const auto* option : options_) {
    const std::string name = option->get_name();
    if (!name.starts_with("--") || name.size() < 6) continue;
    std::string typed = name + "x";
    refused(with(command_line(GetParam()), {typed, "1"}), {"'" + typed + "'", "did you mean '--"});
  }
  refused(with(command_line(GetParam()), {"--zzzzzzzz"}), {"'--zzzzzzzz'", "--help-all"});
}

INSTANTIATE_TEST_SUITE_P(Commands, WrongOptions,
                         testing::Values("train", "eval", "predict", "graph", "prune", "bench", "compare", "report",
                                         "plan"),
                         [](const auto& command) { return std::string(command.param); });

TEST(UsageErrors, NameWhatIsMissingOrUnknown) {
  refused({}, {"no command", "--help"});
  refused({"trian"}, {"'trian'", "did you mean 'train'?"});
  refused({"bench"}, {"bench", "all_reduce"});
  refused({"bench", "all-reduce"}, {"'all-reduce'", "did you mean 'all_reduce'?"});
  refused({"graph"}, {"graph: --model: got nothing"});
  refused({"graph", "--modl", "resnet8"}, {"'--modl'", "did you mean '--model'?"});
  refused({"compare"}, {"compare: FILE: got nothing"});
  refused({"plan"}, {"plan: --from: got nothing"});
  refused({"train", "--epochs=", "--quiet"}, {"--epochs: got ''"});
  refused({"train", "--elastic=", "--check"}, {"--elastic: got '', wanted no value, true or false"});
  refused({"help"}, {"'help'", "did you mean '--help'?"});
  refused({"train", "help"}, {"train: there is no command 'help'; did you mean '--help'?"});
}

TEST(UsageErrors, OfOneNodeAreThoseOfWhatItWouldSend) {
  for (const auto& [option, value] : std::vector<std::pair<std::string, std::string>>{{"--link", "100"},
                                                                                      {"--latency", "1"},
                                                                                      {"--goodput", "1"},
                                                                                      {"--network", "n.json"},
                                                                                      {"--other-flows", "1"}}) {
    refused(with(command_line("plan"), {"--nodes", "1", option, value}),
            {option + ": one of --nodes sends nothing, wanted two or more"});
  }
  refused({"bench", "all_reduce", "--ranks-per-node", "2", "--line-rate", "100"},
          {"--line-rate: one node sends nothing over its interface: wanted --nodes 2 or more"});
}

TEST(UsageErrors, OfNodesNameTheFileOfTheNetwork) {
  const auto parsed = app();
  EXPECT_THROW(parsed->parse("graph --model none.pt2"), std::exception);
  EXPECT_EQ(name_network("[channels] aten::relu (node relu): its axes", *parsed),
            "none.pt2: aten::relu (node relu): its axes");
  EXPECT_EQ(name_network("node relu (aten::relu): the shapes", *parsed),
            "none.pt2: node relu (aten::relu): the shapes");
  EXPECT_EQ(name_network("wrong sizes (in node relu (aten::relu))", *parsed),
            "none.pt2: wrong sizes (in node relu (aten::relu))");
  EXPECT_EQ(name_network("none.pt2: wrong sizes (in node relu)", *parsed), "none.pt2: wrong sizes (in node relu)");
  EXPECT_EQ(name_network("no such file", *parsed), "no such file");
}

TEST(UsageErrors, OfThreadsThatCannotBeStartedNameTheLimit) {
  rlimit before = {};
  getrlimit(RLIMIT_NPROC, &before);
  const rlimit low = {50, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NPROC, &low), 0);
  EXPECT_EQ(no_more_threads(), "cannot start a thread: ulimit -u permits 50");
  setrlimit(RLIMIT_NPROC, &before);
}

TEST(UsageErrors, ReadsNumbersAsTheyAreWritten) {
  refused(with(without(command_line("train"), "--batch-size"), {"--batch-size", "041"}), {"--batch-size: got 41"});
}

}  // namespace
}  // namespace prunex::tools
