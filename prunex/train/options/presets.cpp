#include <fmt/format.h>

#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "prunex/train/options.h"
#include "prunex/train/strategy_choice.h"

namespace prunex::train {
namespace {

using Preset = std::vector<std::pair<const char*, const char*>>;

const std::map<std::string, Preset>& presets() {
  static const std::map<std::string, Preset> all{
      {"", {}},
      // PruneX (arXiv 2512.14628), section 5.1.5 and algorithm 1, with the corrected equations. `local_steps` is up to
      // the data: the paper has 5 to 10 epochs.
      {"paper",
       {{"groups", "channel"},
        {"keep", "0.5"},
        {"keep-schedule", "hard"},
        {"mask-rule", "union"},
        {"exchange", "leader"},
        {"penalty", "residual"},
        {"rho1", "0.0015"},
        {"rho2", "0.00015"},
        {"rho1-max", "10"},
        {"rho2-max", "10"},
        {"start-from", "theta"},
        {"aux", "admm"},
        {"after-freeze", "admm"},
        {"lr", "0.001"},
        {"lr-schedule", "constant"},
        {"warmup-epochs", "0"},
        {"momentum", "0.9"},
        {"weight-decay", "0.0001"},
        {"batch-size", "128"}}},
      // what lost nothing that docs/results.md can show
      {"slow-link",
       {{"strategy", "diloco"},
        {"payload", "int2"},
        {"local-steps", "40"},
        {"outer-lr", "1"},
        {"outer-momentum", "0.5"}}}};
  return all;
}

/// Whether the strategy has the value that an option has now, where it has but some of them.
bool is_had(const TrainOptions& options, const std::string& option) {
  const StrategyFacts& facts = facts_of(options.strategy);
  if (option == "groups") return facts.weights_alone();
  if (option == "payload") return options.exchange.payload <= facts.narrowest;
  return true;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const auto& [name, preset] : presets()) names.push_back(name);
  return names;
}

void apply_preset(text::OptionList& list, const TrainOptions& options) {
  const Preset& preset = presets().at(options.preset);
  std::vector<text::Option*> open;
  size_t kept = 0;  // of what it says: what a run that goes on was told, too
  for (const auto& [name, value] : preset) {
    text::Option* option = list.find(name);
    if (!option->given) {
      option->value.read(value);
      open.push_back(option);
    } else if (option->value.write() == value) {
      ++kept;
    }
  }
  for (text::Option* option : open) {
    if (option->why_idle().empty() && is_had(options, option->name)) {
      ++kept;
    } else {
      option->value.read(option->usual);
    }
  }
  const bool is_asked = !list.find("preset")->is_kept;  // a run that has begun goes on
  if (kept > 0 || preset.empty() || !is_asked) return;
  throw std::invalid_argument(
      fmt::format("`preset`: got {}, of which nothing is left beside `strategy` {} and what else was said",
                  options.preset, options.strategy));
}

}  // namespace prunex::train
