#include "report/command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

namespace prunex::report {
namespace {

using Options = std::map<std::string, std::string>;

// What a reader wants to know first, in this order.
const std::vector<std::string> kFirst = {
    "dataset",   "train-limit", "model",      "width", "nodes",  "ranks-per-node", "sites",   "strategy", "epochs",
    "exchanges", "local-steps", "batch-size", "lr",    "groups", "keep",           "payload", "sparse",   "prune-to"};

void add(std::string& words, const std::string& name, const std::string& value) {
  if (value.empty() || value == "auto" || value == "false") return;
  if (!words.empty()) words += ' ';
  words += fmt::format("--{}", name);
  if (value != "true") words += fmt::format(" {}", quoted(value));
}

std::string words_of(Options options) {
  std::string words;
  options.erase("directory");  // the identity of a run without options
  for (const auto& name : kFirst) {
    if (const auto option = options.extract(name)) add(words, name, option.mapped());
  }
  for (const auto& [name, value] : options) add(words, name, value);
  return words;
}

}  // namespace

std::string quoted(const std::string& text) {
  const auto harmless = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || std::string("_-./,:=+@%").find(c) != std::string::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), harmless)) return text;
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') word += "'\\'";  // out of the quotes and back
    word += c;
  }
  return word + "'";
}

std::string shared_command(const Task& task) {
  const std::string words = words_of(task.shared);
  return words.empty() ? "" : "prunex train " + words;
}

std::string own_options(const Task& task, const Variant& variant) {
  Options own = identity(variant.first());
  std::erase_if(own, [&](const auto& option) { return task.shared.contains(option.first); });
  return words_of(std::move(own));
}

}  // namespace prunex::report
