#include "tools/prunex/commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <system_error>

#include "prunex/comm/connect.h"
#include "prunex/comm/nccl/gpu.h"
#include "prunex/data/encoded_images.h"
#include "prunex/text/one_line.h"
#include "prunex/text/read_file.h"
#include "prunex/train/local_step.h"
#include "prunex/train/options.h"
#include "tools/prunex/help.h"

namespace prunex::tools {
namespace {

/// "-b,--begin", "DIR"
std::string names_of(const text::Option& option) {
  if (option.is_positional) return option.name;
  const std::string name = "--" + option.name;
  return option.letter == 0 ? name : fmt::format("-{},{}", option.letter, name);
}

void add_option(CLI::App& command, const text::Option& option, bool last_wins) {
  const auto& value = option.value;
  const std::string names = names_of(option);
  const std::string help = text::with_flags(option.help);
  CLI::Option* added = nullptr;
  if (value.is_flag) {
    added = command.add_flag(names, help)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  } else {
    added = command.add_option(names, help);
    added->type_name(value.words.empty() ? value.type : fmt::format("{{{}}}", fmt::join(value.words, ",")));
    added->default_str(option.usual);
    if (value.is_list) added->expected(CLI::detail::expected_max_vector_size);
    if (last_wins) added->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  added->group(option.is_positional ? added->get_group() : option.topic)
      ->configurable(option.in_files)
      ->required(option.required);
}

void take_options(const CLI::App& command, text::OptionList& list) {
  for (auto& option : list.all()) {
    const auto* given = command.get_option((option.is_positional ? "" : "--") + option.name);
    if (given->count() == 0) continue;
    const auto& words = given->results();
    if (!option.value.is_list) {
      option.set(words.back());
      continue;
    }
    for (const auto& word : words) option.set(word);
  }
}

[[noreturn]] void refuse_name(const char* option, const std::string& path, const char* what) {
  throw std::invalid_argument(fmt::format("`{}`: got {}, which is a name for {}: wanted another", option, path, what));
}

}  // namespace

CLI::App& add_command(CLI::App& parent, Command command, int& status) {
  auto* sub = parent.add_subcommand(command.name, command.help);
  std::vector<std::string> basic;
  for (const auto& option : command.options.all()) {
    add_option(*sub, option, command.last_wins);
    if (option.is_basic) basic.push_back("--" + option.name);
  }
  if (!command.examples.empty()) {
    show_first(*sub, basic);
    sub->footer(command.examples);
  }
  sub->callback([sub, shared = std::make_shared<Command>(std::move(command)), &status] {
    auto& options = shared->options;
    take_options(*sub, options);
    if (shared->complete) shared->complete(options);
    options.check();
    options.refuse_idle();
    status = shared->run();
  });
  return *sub;
}

void describe_quiet(text::OptionList& list, bool& quiet) {
  list.add("quiet", text::flag(quiet), "no progress and no remarks, only results");
}

comm::ConnectOptions connect_options(const train::RankOptions& ranks) {
  comm::ConnectOptions options{.interfaces = ranks.interfaces,
                               .timeout = train::milliseconds(ranks.comm_timeout),
                               .join_timeout = train::milliseconds(ranks.join_timeout),
                               .shared_memory = ranks.shared_memory,
                               .privacy = comm::read_privacy(ranks.secret_file, ranks.encrypt),
                               .ports = ranks.ports,
                               .heartbeat_timeout = train::milliseconds(ranks.heartbeat_timeout),
                               .announce = true};
  if (ranks.device == "cuda") options.device = at::kCUDA;
  return options;
}

void expect_device(const comm::ConnectOptions& options) {
  if (options.device == at::kCUDA) comm::check_gpu();
}

void describe_device(text::OptionList& list, std::string& device) {
  list.add("device", text::one_of(device, {"cpu", "cuda"}), "where to compute; cuda: the first GPU");
}

c10::Device chosen_device(const std::string& device) {
  if (device == "cpu") return at::kCPU;
  train::compute_reproducibly();
  return comm::use_gpu(0).device;
}

std::string apply_file(text::OptionList& list, const std::string& command, const std::string& option,
                       const std::string& path) {
  const std::string source = text::field_name(option);
  std::string text;
  try {
    text = text::read_file(path, text::kLargestToml);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("{}: {}: {}", source, path, error.what()));
  }
  list.apply(text, fmt::format("{} {}", source, path), command);
  return text;
}

std::string line_of(const std::string& name, const std::vector<std::string>& words, const text::OptionList& list) {
  std::string line = "prunex " + name;
  for (const auto& word : words) line += " " + text::shell_word(word);
  for (const auto& option : list.all()) {
    if (!option.given || option.required) continue;
    const std::string value = option.value.write();
    if (option.value.is_flag && value == "false") continue;
    line += " --" + option.name;
    if (!option.value.is_flag) line += " " + text::shell_word(value);
  }
  return line;
}

void refuse_same_file(const char* option, const std::string& path, const char* other, const std::string& other_path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (path.empty() || other_path.empty()) return;
  const auto place = [&](const std::string& file) {
    return fs::weakly_canonical(fs::absolute(file, ignored), ignored);
  };
  if (place(path) != place(other_path)) return;
  throw std::invalid_argument(fmt::format("`{}`: got {}, which is `{}`: wanted another file", option, path, other));
}

void expect_output(const char* option, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (path.empty()) return;
  if (fs::is_directory(path, ignored)) {
    throw std::invalid_argument(fmt::format("`{}`: {} is a folder, wanted a file in one", option, path));
  }
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, ignored)) {
    throw std::invalid_argument(fmt::format("`{}` {}: {} is no folder", option, path, folder.string()));
  }
  const fs::path extension = fs::path(path).extension();
  if (data::names_an_image(path) || extension == ".tar" || extension == ".bin") refuse_name(option, path, "images");
}

void expect_text_output(const char* option, const std::string& path) {
  expect_output(option, path);
  const std::filesystem::path extension = std::filesystem::path(path).extension();
  if (extension == ".pt2" || extension == ".safetensors") refuse_name(option, path, "tensors");
  if (extension == ".toml") refuse_name(option, path, "a configuration");
}

}  // namespace prunex::tools
