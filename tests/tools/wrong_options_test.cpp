// Every wrong value of every option: exit code 2 and one line on standard error that names the option and what was got.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>

#include "tests/scratch.h"
#include "tests/tools/in_process.h"
#include "tools/prunex/command_line.h"
#include "tools/prunex/help.h"

namespace prunex::tools {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Words = std::vector<std::string>;

/// A command line of every command that is quick, or fails in another way, where a wrong option is not refused.
Words command_line(const std::string& command) {
  if (command == "train") {
    return {"train", "--check",     "--quiet", "--samples",     "40", "--model", "resnet8", "--batch-size",
            "10",    "--exchanges", "1",       "--local-steps", "1"};
  }
  if (command == "bench") return {"bench", "all_reduce", "-e", "64K", "-b", "64K"};
  if (command == "graph") return {"graph", "--model", "resnet8"};
  if (command == "eval") return {"eval", "--model", "none.pt2"};
  if (command == "predict") return {"predict", "--model", "none.pt2", "--input", "in", "--output", "out"};
  if (command == "prune") return {"prune", "--model", "resnet8", "--output", "none/out"};
  if (command == "compare") return {"compare", "none.toml"};
  return {"report", "none"};
}

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// Without the option that the wrong one stands for: some may be there once only.
Words without(Words words, const std::string& option) {
  const auto found = std::find(words.begin(), words.end(), option);
  if (found != words.end()) words.erase(found, found + 2);
  return words;
}

void refused(const Words& words, const Words& named) {
  SCOPED_TRACE(testing::PrintToString(words));
  const Result result = run(words);
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.output, "");
  EXPECT_THAT(result.errors, StartsWith("prunex: "));
  EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1) << result.errors;
  for (const auto& word : named) EXPECT_THAT(result.errors, HasSubstr(word));
}

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
                         testing::Values("train", "eval", "predict", "graph", "prune", "bench", "compare", "report"),
                         [](const auto& command) { return std::string(command.param); });

struct Case {
  const char* command;
  Words options;
  Words named;
};

class OutOfRange : public testing::TestWithParam<Case> {};

TEST_P(OutOfRange, IsNamedWithWhatWasGot) {
  const auto& [command, options, named] = GetParam();
  refused(with(without(command_line(command), options.front()), options), named);
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  std::string name = std::string(info.param.command) + "_" + std::to_string(info.index);
  for (const auto& word : info.param.options) name += "_" + word;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

const char* const kHuge = "9223372036854775807";

INSTANTIATE_TEST_SUITE_P(
    Train, OutOfRange,
    testing::ValuesIn(std::vector<Case>{
        {"train", {"--nodes", "0"}, {"--nodes: got 0", "1 or more"}},
        {"train", {"--nodes", "-1"}, {"--nodes: got -1"}},
        {"train", {"--nodes", "2147483647"}, {"--nodes: got 2147483647", "at most"}},
        {"train", {"--nodes", "2147483648"}, {"--nodes: got '2147483648'", "at most 2147483647"}},
        {"train", {"--nodes", "100000", "--ranks-per-node", "100000"}, {"--nodes", "100000 ranks", "at most"}},
        {"train", {"--ranks-per-node", ""}, {"--ranks-per-node: got ''"}},
        {"train", {"--ranks-per-node", "2,x"}, {"--ranks-per-node: got '2,x'"}},
        {"train", {"--ranks-per-node", "-1"}, {"--ranks-per-node: got -1"}},
        {"train", {"--ranks-per-node", "2147483648"}, {"--ranks-per-node: got 2147483647", "at most"}},
        {"train", {"--ranks-per-node", "1e9"}, {"--ranks-per-node: got '1e9'"}},
        {"train", {"--sites", "0"}, {"--sites: got 0"}},
        {"train", {"--threads", "0"}, {"--threads: got 0"}},
        {"train", {"--threads", "2147483647"}, {"--threads: got 2147483647", "at most 1024"}},
        {"train", {"--samples", "-1"}, {"--samples", "-1"}},
        {"train", {"--samples", "9"}, {"--samples", "9", "10"}},
        {"train", {"--samples", kHuge}, {"--samples: got 9223372036854775807", "at most", "GB"}},
        {"train", {"--train-limit", "-1"}, {"--train-limit", "-1"}},
        {"train", {"--train-limit", kHuge}, {"--train-limit", kHuge}},
        {"train", {"--test-limit", "-1"}, {"--test-limit", "-1"}},
        {"train", {"--validation", "-1"}, {"--validation", "-1"}},
        {"train", {"--validation", "40"}, {"--validation", "40"}},
        {"train", {"--width", "0"}, {"--width: got 0"}},
        {"train", {"--width", "1e300"}, {"--width", "1e+300"}},
        {"train", {"--epochs", "0", "--exchanges", "0"}, {"--epochs: got 0"}},
        {"train", {"--epochs", "-1", "--exchanges", "0"}, {"--epochs: got -1"}},
        {"train", {"--epochs", "1e18", "--exchanges", "0"}, {"--epochs: got 1e+18", "at most"}},
        {"train", {"--epochs", "1e300", "--exchanges", "0"}, {"--epochs: got 1e+300", "at most"}},
        {"train", {"--exchanges", "-1"}, {"--exchanges: got -1"}},
        {"train", {"--exchanges", "2147483647"}, {"--exchanges: got 2147483647", "at most"}},
        {"train",
         {"--exchanges", "999999999", "--local-steps", "999999999"},
         {"--exchanges: got 999999999 of 999999999"}},
        {"train", {"--local-steps", "0"}, {"--local-steps: got 0"}},
        {"train", {"--local-steps", kHuge}, {"--local-steps: got 9223372036854775807", "at most"}},
        {"train", {"--batch-size", "0"}, {"--batch-size: got 0"}},
        {"train", {"--batch-size", "41"}, {"--batch-size: got 41", "at most 40"}},
        {"train", {"--batch-size", "9000000000000000000"}, {"--batch-size: got 9000000000000000000", "at most 40"}},
        {"train", {"--lr", "0"}, {"--lr: got 0"}},
        {"train", {"--lr", "-0.1"}, {"--lr: got -0.1"}},
        {"train", {"--warmup-epochs", "-1"}, {"--warmup-epochs: got -1"}},
        {"train", {"--warmup-epochs", "1e300"}, {"--warmup-epochs: got 1e+300", "at most"}},
        {"train", {"--warmup-epochs", "5"}, {"--warmup-epochs: got 20 steps"}},
        {"train", {"--momentum", "1"}, {"--momentum: got 1"}},
        {"train", {"--momentum", "-0.5"}, {"--momentum: got -0.5"}},
        {"train", {"--weight-decay", "-1"}, {"--weight-decay: got -1"}},
        {"train", {"--seed", "-1"}, {"--seed: got '-1'"}},
        {"train", {"--keep", "0"}, {"--keep: got 0"}},
        {"train", {"--keep", "1.5"}, {"--keep: got 1.5"}},
        {"train", {"--round-to", "0"}, {"--round-to: got 0"}},
        {"train", {"--round-to", "-1"}, {"--round-to: got '-1'", "auto"}},
        {"train", {"--round-to", "1000000"}, {"--round-to: got 1000000", "at most"}},
        {"train", {"--prune-start", "0"}, {"--prune-start: got 0"}},
        {"train", {"--prune-start", kHuge}, {"--prune-start: got 9223372036854775807", "at most"}},
        {"train", {"--prune-end", "-1"}, {"--prune-end: got '-1'", "auto"}},
        {"train", {"--prune-end", "1"}, {"--prune-end: got 1", "2 or more"}},
        {"train", {"--freeze-after", "-1"}, {"--freeze-after: got '-1'", "never"}},
        {"train", {"--freeze-when-stable", "-1"}, {"--freeze-when-stable: got -1"}},
        {"train", {"--outer-from", "-1"}, {"--outer-from: got -1"}},
        {"train", {"--outer-lr", "0"}, {"--outer-lr: got 0"}},
        {"train", {"--outer-momentum", "1"}, {"--outer-momentum: got 1"}},
        {"train", {"--outer-momentum", "-0.1"}, {"--outer-momentum: got -0.1"}},
        {"train", {"--tolerance", "-1"}, {"--tolerance: got -1"}},
        {"train", {"--kappa", "-1"}, {"--kappa: got -1"}},
        {"train", {"--rho1", "0"}, {"--rho1: got 0"}},
        {"train", {"--rho2", "-1"}, {"--rho2: got -1"}},
        {"train", {"--rho1-max", "-1"}, {"--rho1-max: got -1"}},
        {"train", {"--rho2-max", "-1"}, {"--rho2-max: got -1"}},
        {"train", {"--prune-at", "0"}, {"--prune-at: got 0"}},
        {"train", {"--prune-at", "1"}, {"--prune-at: got 1"}},
        {"train", {"--local-after", "-1"}, {"--local-after: got -1"}},
        {"train", {"--density", "0"}, {"--density: got 0"}},
        {"train", {"--density", "2"}, {"--density: got 2"}},
        {"train", {"--powersgd-rank", "0"}, {"--powersgd-rank: got 0"}},
        {"train", {"--powersgd-start", "-1"}, {"--powersgd-start: got -1"}},
        {"train", {"--dgc-clip", "-1"}, {"--dgc-clip: got -1"}},
        {"train", {"--dgc-warmup-epochs", "-1"}, {"--dgc-warmup-epochs: got -1"}},
        {"train",
         {"--dgc-warmup-epochs", "1e300", "--strategy", "top_k", "--dgc"},
         {"--dgc-warmup-epochs: got 1e+300", "at most"}},
        {"train", {"--eval-every", "-1"}, {"--eval-every: got -1"}},
        {"train", {"--resume-exchange", "3"}, {"--resume-exchange", "--resume"}},
        {"train", {"--sparse-epochs", "-1"}, {"--sparse-epochs: got -1"}},
        {"train",
         {"--sparse-epochs", "1e300", "--sparse", "group_lasso", "--strategy", "ddp"},
         {"--sparse-epochs: got 1e+300", "at most"}},
        {"train", {"--sparse-reg", "-1"}, {"--sparse-reg: got -1"}},
        {"train", {"--sparse-growth", "-1"}, {"--sparse-growth: got -1"}},
        {"train", {"--sparse-share", "1"}, {"--sparse-share: got 1"}},
        {"train", {"--sparse-warmup", "-1"}, {"--sparse-warmup: got -1"}},
        {"train", {"--sparse-refresh", "0"}, {"--sparse-refresh: got 0"}},
        {"train", {"--sparse-refresh", kHuge}, {"--sparse-refresh: got 9223372036854775807", "at most"}},
        {"train", {"--sparse-lr", "0"}, {"--sparse-lr: got 0"}},
        {"train", {"--sparse-weight-decay", "-1"}, {"--sparse-weight-decay: got -1"}},
        {"train", {"--finetune-epochs", "-1"}, {"--finetune-epochs: got -1"}},
        {"train", {"--finetune-epochs", "1e300"}, {"--finetune-epochs: got 1e+300", "at most"}},
        {"train", {"--finetune-lr", "-1"}, {"--finetune-lr: got -1"}},
        {"train", {"--prune-below", "-1"}, {"--prune-below: got -1"}},
        {"train", {"--prune-steps", "0"}, {"--prune-steps: got 0"}},
        {"train", {"--prune-steps", kHuge}, {"--prune-steps: got 9223372036854775807", "at most"}},
        {"train", {"--prune-every", "-1"}, {"--prune-every: got -1"}},
        {"train", {"--importance-samples", "0"}, {"--importance-samples: got 0"}},
        {"train", {"--max-ratio", "2"}, {"--max-ratio: got 2"}},
        {"train", {"--max-ratio", "-1"}, {"--max-ratio: got -1"}},
        {"train", {"--comm-timeout", "0"}, {"--comm-timeout: got 0"}},
        {"train", {"--heartbeat-timeout", "-1"}, {"--heartbeat-timeout: got -1"}},
        {"train", {"--partition", "dirichlet:0", "--nodes", "2"}, {"--partition: got 'dirichlet:0'", "classes:N"}},
        {"train", {"--partition", "classes:4", "--nodes", "2"}, {"--partition: got classes:4", "classes:5"}},
        {"train",
         {"--partition", "dirichlet:0.01", "--nodes", "4"},
         {"--partition dirichlet:0.01: node", "--batch-size"}},
        {"train", {"--groups", ""}, {"--groups", "''"}},
        {"train", {"--groups", "filter:2"}, {"--groups", "'2'"}},
        {"train", {"--groups", "none+filter"}, {"--groups", "none"}},
        {"train", {"--prune-to", "rato=0.5", "--strategy", "ddp"}, {"--prune-to", "'rato'"}},
        {"train", {"--prune-to", "ratio=nan", "--strategy", "ddp"}, {"--prune-to", "nan"}},
        {"train", {"--prune-to", "ratio=2", "--strategy", "ddp"}, {"--prune-to", "2"}},
        {"train", {"--groups", "none"}, {"--groups: got none", "--aux admm", "--kappa 0"}},
        {"train", {"--resume", ""}, {"--resume: got ''"}},
        {"train", {"more"}, {"train: got 'more'"}},
        {"train", {"--precision", "fp23"}, {"did you mean 'fp32'?"}},
        {"train", {"--strategy", "hsadm"}, {"did you mean 'hsadmm'?"}}}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    OtherCommands, OutOfRange,
    testing::ValuesIn(std::vector<Case>{
        {"bench", {"--nodes", "0"}, {"--nodes: got 0"}},
        {"bench", {"--nodes", "2147483647"}, {"--nodes: got 2147483647"}},
        {"bench", {"--nodes", "100000", "--ranks-per-node", "100000"}, {"--nodes", "100000 ranks", "at most"}},
        {"bench", {"-b", "3"}, {"-b: got '3'"}},
        {"bench", {"-b", "-1"}, {"-b: got '-1'"}},
        {"bench", {"-b", ""}, {"--begin: got ''"}},
        {"bench", {"-b", "1.5K"}, {"-b: got '1.5K'"}},
        {"bench", {"-b", "9999999999G"}, {"-b: got '9999999999G'"}},
        {"bench", {"-e", "99999999999999999999"}, {"-e: got '99999999999999999999'"}},
        {"bench", {"-e", "1K"}, {"-b: got 64K", "at most -e, 1K"}},
        {"bench", {"--factor", "0.5"}, {"--factor: got 0.5"}},
        {"bench", {"--factor", "1e300"}, {"--factor: got 1e+300"}},
        {"bench", {"-n", "0"}, {"--iterations: got 0"}},
        {"bench", {"-n", "1", "-n", "2"}, {"--iterations", "2 times", "once"}},
        {"bench", {"-w", "-1"}, {"--warm-up: got -1"}},
        {"bench", {"--line-rate", "-1"}, {"--line-rate: got -1"}},
        {"bench", {"--form", "ring"}, {"--form: got 'ring'"}},
        {"eval", {"--batch-size", "0"}, {"--batch-size: got 0"}},
        {"eval", {"--threads", "0"}, {"--threads: got 0"}},
        {"eval", {"--threads", "100000"}, {"--threads: got 100000"}},
        {"graph", {"--classes", "-1"}, {"--classes: got -1"}},
        {"graph", {"--classes", kHuge}, {"--classes: got 9223372036854775807"}},
        {"graph", {"--width", "0"}, {"--width", "0"}},
        {"graph", {"--width", "1e300"}, {"--width", "1e+300"}},
        {"graph", {"--input", ""}, {"--input"}},
        {"graph", {"--input", "3x3"}, {"--input: got '3x3'"}},
        {"graph", {"--input", "1x3x0x4"}, {"--input: got '1x3x0x4'"}},
        {"graph", {"--input", "1x3x32x99999999999999999999"}, {"--input: got '1x3x32x9999"}},
        {"graph", {"--model", "resnet9"}, {"--model: got 'resnet9'", "did you mean 'resnet8'?"}},
        {"prune", {"--ratio", "-1"}, {"--ratio", "-1"}},
        {"prune", {"--ratio", "2"}, {"--ratio", "2"}},
        {"prune", {"--macs", "0"}, {"--macs", "0"}},
        {"prune", {"--macs", "1e300"}, {"--macs", "1e+300"}},
        {"prune", {"--parameters", "-5"}, {"--parameters", "-5"}},
        {"prune", {"--speed-up", "0.5"}, {"--speed-up", "0.5"}},
        {"prune", {"--ratio", "0.5", "--macs", "0.5"}, {"--ratio, --macs", "got 2"}},
        {"prune", {"--latency-batch", "0"}, {"--latency-batch: got 0"}},
        {"prune", {"--latency", "0"}, {"--latency", "0"}},
        {"prune", {"--steps", "0"}, {"--steps: got 0"}},
        {"prune", {"--steps", kHuge}, {"--steps: got 9223372036854775807"}},
        {"prune", {"--round-to", "0", "--ratio", "0.5"}, {"--round-to: got 0"}},
        {"prune", {"--round-to", kHuge, "--ratio", "0.5"}, {"--round-to: got 9223372036854775807"}},
        {"prune", {"--max-ratio", "2", "--ratio", "0.5"}, {"--max-ratio", "2"}},
        {"prune", {"--layer-ratio", "x", "--ratio", "0.5"}, {"--layer-ratio", "x"}},
        {"prune", {"--layer-ratio", "*=nan", "--ratio", "0.5"}, {"--layer-ratio", "nan"}},
        {"prune", {"--importance-samples", "0"}, {"--importance-samples: got 0"}},
        {"prune", {"--seed", "-1"}, {"--seed: got '-1'"}},
        {"prune", {"--threads", "-1"}, {"--threads: got -1"}},
        {"compare", {"--jobs", "0"}, {"--jobs: got 0"}},
        {"compare", {"--jobs", "2147483647"}, {"--jobs: got 2147483647"}},
        {"compare", {"--time-exchanges", "0"}, {"--time-exchanges: got 0"}},
        {"compare", {"--verify", "0"}, {"--verify: got 0"}},
        {"compare", {"--verify-exchanges", "-1"}, {"--verify-exchanges: got -1"}},
        {"compare", {"--only", ""}, {"--only: got ''"}},
        {"compare", {"second.toml"}, {"compare: got 'second.toml'"}},
        {"report", {"--output", "same", "--json", "same"}, {"--json: got same"}}}),
    name_of);

/// Command lines whose first option has no effect beside the others, and what says so.
INSTANTIATE_TEST_SUITE_P(
    WithoutEffect, OutOfRange,
    testing::ValuesIn(std::vector<Case>{
        {"train", {"--keep", "0.5", "--strategy", "ddp"}, {"--keep: ddp does not prune"}},
        {"train", {"--keep", "0.7", "--strategy", "diloco"}, {"--keep: diloco masks nothing without --groups"}},
        {"train", {"--keep", "0.7", "--groups", "none"}, {"--keep: --groups none masks nothing"}},
        {"train", {"--mask-rule", "union", "--strategy", "powersgd"}, {"--mask-rule: powersgd does not prune"}},
        {"train", {"--mask-rule", "union", "--strategy", "hsadmm_flat"}, {"--mask-rule: hsadmm_flat takes all"}},
        {"train", {"--mask-importance", "l1", "--strategy", "ddp"}, {"--mask-importance: ddp does not prune"}},
        {"train", {"--prune-start", "1", "--strategy", "one_shot"}, {"--prune-start: one_shot prunes once"}},
        {"train", {"--kappa", "0.2", "--strategy", "ddp"}, {"--kappa: ddp has no duals"}},
        {"train", {"--kappa", "0.2", "--strategy", "diloco"}, {"--kappa: diloco has no duals"}},
        {"train", {"--kappa", "0.2", "--penalty", "fixed"}, {"--kappa: ", "--penalty"}},
        {"train", {"--rho1", "0.2"}, {"--rho1: it follows from --kappa"}},
        {"train", {"--start-from", "theta", "--kappa", "0"}, {"--start-from: there are no duals with --kappa 0"}},
        {"train", {"--after-freeze", "average", "--strategy", "diloco"}, {"--after-freeze: diloco has its own"}},
        {"train", {"--outer-lr", "1", "--strategy", "ddp"}, {"--outer-lr: ddp has no outer step"}},
        {"train", {"--outer-from", "1", "--strategy", "scaffold"}, {"--outer-from: scaffold has no outer step"}},
        {"train", {"--keep", "0.5", "--strategy", "scaffold"}, {"--keep: scaffold does not prune"}},
        {"train", {"--outer-momentum", "0.5", "--strategy", "local_sgd"}, {"--outer-momentum: ", "--outer-from"}},
        {"train", {"--exchange", "leader", "--strategy", "top_k"}, {"--exchange: top_k has one form"}},
        {"train", {"--density", "0.1"}, {"--density: hsadmm is not top_k"}},
        {"train", {"--dgc-clip", "1", "--strategy", "top_k"}, {"--dgc-clip: ", "--dgc"}},
        {"train", {"--powersgd-rank", "4", "--strategy", "ddp"}, {"--powersgd-rank: ddp is not powersgd"}},
        {"train", {"--prune-at", "0.5"}, {"--prune-at: nothing is cut without --prune-to"}},
        {"train", {"--ignore", "fc", "--strategy", "prunetrain"}, {"--ignore: prunetrain does not prune"}},
        {"train", {"--max-ratio", "0.5", "--strategy", "ddp"}, {"--max-ratio: ddp does not prune"}},
        {"train", {"--scope", "global", "--strategy", "ddp"}, {"--scope: ddp does not prune"}},
        {"train", {"--importance", "l1"}, {"--importance: nothing is cut without --prune-to"}},
        {"train", {"--importance-samples", "9"}, {"--importance-samples: norm looks at no images"}},
        {"train", {"--prune-steps", "2"}, {"--prune-steps: nothing is cut without --prune-to"}},
        {"train", {"--prune-every", "2"}, {"--prune-every: there is one cut at most"}},
        {"train", {"--sparse-reg", "0.1"}, {"--sparse-reg: nothing is penalised without --sparse"}},
        {"train", {"--sparse-growth", "1", "--strategy", "prunetrain"}, {"--sparse-growth: --sparse group_lasso"}},
        {"train", {"--finetune-lr", "0.1"}, {"--finetune-lr: ", "--finetune-epochs"}},
        {"train", {"--data-dir", "here"}, {"--data-dir: --dataset synthetic does not read it"}},
        {"train", {"--samples", "40", "--dataset", "cifar10"}, {"--samples: --dataset cifar10 does not read it"}},
        {"train", {"--partition", "classes:5"}, {"--partition: there is one node"}},
        {"train", {"--norm", "group", "--model", "x.pt2"}, {"--norm: the network of a file has its own"}},
        {"train", {"--max-model-size", "1"}, {"--max-model-size: resnet8 is built in"}},
        {"train", {"--device", "cuda", "--strategy", "ddp"}, {"--device cuda: --strategy ddp computes on the CPU"}},
        {"prune", {"--samples", "40", "--ratio", "0.5"}, {"--samples: no --dataset is named"}},
        {"prune", {"--importance-samples", "4", "--ratio", "0.5"}, {"--importance-samples: l2 looks at no images"}},
        {"eval", {"--samples", "40", "--test", "t.safetensors"}, {"--samples: no --dataset is named"}},
        {"compare", {"--cluster", "x"}, {"--cluster: needs --verify"}}}),
    name_of);

TEST(WithoutEffect, WhatAPresetSaysIsLeftOut) {
  const Words words{"--preset", "paper", "--strategy", "hsadmm_flat", "--kappa", "0", "--batch-size", "10"};
  EXPECT_EQ(run(with(without(command_line("train"), "--batch-size"), words)).status, 0);
}

TEST(UsageErrors, NameWhatIsMissingOrUnknown) {
  refused({}, {"no command", "--help"});
  refused({"trian"}, {"'trian'", "did you mean 'train'?"});
  refused({"bench"}, {"bench", "all_reduce"});
  refused({"bench", "all-reduce"}, {"'all-reduce'", "did you mean 'all_reduce'?"});
  refused({"graph"}, {"graph: --model: got nothing"});
  refused({"graph", "--modl", "resnet8"}, {"'--modl'", "did you mean '--model'?"});
  refused({"compare"}, {"compare: FILE: got nothing"});
  refused({"train", "--epochs=", "--quiet"}, {"--epochs: got ''"});
}

TEST(UsageErrors, OfNodesNameTheFileOfTheNetwork) {
  const auto parsed = app();
  EXPECT_THROW(parsed->parse("graph --model none.pt2"), std::exception);
  EXPECT_EQ(name_network("[prune] aten::relu (node relu): its axes", *parsed),
            "none.pt2: aten::relu (node relu): its axes");
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
