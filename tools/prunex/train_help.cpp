#include "tools/prunex/train_help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <vector>

#include "prunex/strategies/payload.h"
#include "tools/prunex/columns.h"
#include "tools/prunex/help.h"

namespace prunex::tools {
namespace {

const std::vector<std::string> kUsedMost{
    "--config",    "--dataset",     "--test",          "--data-dir", "--model",  "--weights",          "--nodes",
    "--device",    "--threads",     "--epochs",        "--lr",       "--groups", "--ranks-per-node",   "--batch-size",
    "--precision", "--lr-schedule", "--warmup-epochs", "--seed",     "--keep",   "--local-steps",      "--strategy",
    "--payload",   "--eval-every",  "--run-dir",       "--resume",   "--check",  "--checkpoint-every", "--quiet",
    "--log"};

constexpr const char* kExamples = R"(Examples:
  prunex train --nodes 2
  prunex train --dataset cifar10 --data-dir data --model resnet20 --nodes 2 --epochs 20
  prunex train --model net.pt2 --dataset train.safetensors --test test.safetensors --keep 0.7
  prunex train --strategy diloco --payload int4 --nodes 2 --lr 0.05
  prunex train --config experiment.toml --check
  prunex train --resume runs/cifar10-resnet20-hsadmm-1)";

std::string row(const char* what, const std::string& text) {
  return fmt::format("{:<9} {}\n", what, wrap(text, 10, 10));
}

std::string length_of(const train::Plan& plan, const train::TrainOptions& options) {
  const auto& length = plan.length;
  std::vector<std::string> phases;
  for (const auto& phase : length.phases) phases.push_back(fmt::format("{} {}", phase.name, phase.steps));
  const std::string parts = phases.size() == 1 ? "" : fmt::format(" ({})", fmt::join(phases, ", "));
  return fmt::format("{} steps{}, {} per epoch; {} exchanges of {} steps", length.steps, parts, length.steps_per_epoch,
                     length.exchanges, options.local_steps);
}

std::string budget_of(const train::TrainOptions& options) {
  return options.budget.empty() ? fmt::format("{}", options.keep) : options.budget;
}

std::string pruning_of(const train::Plan& plan, const train::TrainOptions& options) {
  if (plan.last_cut > 0) {
    const auto& pruning = options.pruning;
    if (pruning.steps == 1) return fmt::format("to {} in one cut, after exchange {}", pruning.target, plan.first_cut);
    return fmt::format("to {} in {} cuts, after exchanges {} to {}", pruning.target, pruning.steps, plan.first_cut,
                       plan.last_cut);
  }
  if (options.pruning.below > 0) {
    return fmt::format("units below {}, every {} exchanges", options.pruning.below, options.pruning.every);
  }
  if (plan.groups.empty()) return "nothing";
  int64_t units = 0, kept = 0;
  for (const auto& group : plan.groups) {
    units += group.size;
    kept += std::llround(group.keep * static_cast<double>(group.size));
  }
  const auto& length = plan.length;
  const std::string goal = plan.one_budget ? fmt::format("one budget for all, --keep {}", budget_of(options))
                                           : fmt::format("{} are kept", kept);
  std::string text = fmt::format("{}: {} groups of {} units, {}; prune-start {}, prune-end {}", plan.group_words,
                                 plan.groups.size(), units, goal, length.prune_start, length.prune_end);
  const bool freezes = length.freeze_after != strategies::kNever;
  text += freezes ? fmt::format(", masks are final after exchange {}", length.freeze_after) : ", masks are never final";
  if (freezes && length.freeze_after >= length.exchanges) text += ", which the run does not go beyond";
  return text;
}

std::string traffic_of(const train::Plan& plan, const train::TrainOptions& options) {
  if (options.nodes == 1) return "nothing leaves the node";
  const auto mb = static_cast<double>(plan.exchange_bytes) / 1e6;
  const std::string payload = strategies::name_of(options.exchange.payload);
  if (plan.gradients) {
    return fmt::format("{} {:.3g} MB per {} steps and node, gradients in {}",
                       options.strategy == "ddp" ? "about" : "at most", mb, options.local_steps, payload);
  }
  return fmt::format("about {:.3g} MB per exchange and node in {} while the network is whole", mb, payload);
}

}  // namespace

void explain_train(CLI::App& command) {
  show_first(command, kUsedMost);
  command.footer(kExamples);
}

std::string plan_text(const train::Plan& plan, const train::TrainOptions& options) {
  return row("network", fmt::format("{} for {} images, {} classes: {} parameters, {:.2f} M MACs per image",
                                    options.model, fmt::join(plan.image, "x"), plan.classes, plan.size.parameters,
                                    static_cast<double>(plan.size.macs) / 1e6)) +
         row("images", fmt::format("{}: {} for training, {} held out, {} for the test", options.data.dataset,
                                   plan.training_images, plan.validation_images, plan.test_images)) +
         row("ranks", fmt::format("{}, {}, {} images in every step of all", comm::describe(train::shape_of(options)),
                                  options.strategy, plan.length.images_per_step)) +
         row("length", length_of(plan, options)) + row("pruned", pruning_of(plan, options)) +
         row("sent", traffic_of(plan, options));
}

}  // namespace prunex::tools
