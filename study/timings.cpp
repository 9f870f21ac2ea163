#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "prunex/text/option.h"
#include "prunex/text/settings.h"
#include "prunex/train/options.h"
#include "study/comparison.h"

namespace prunex::study {
namespace {

/// Empty if it is not said.
std::string word_of(const OptionValues& options, const char* name) {
  const auto found = options.find(name);
  return found == options.end() ? "" : text::word_of(found->second);
}

double number_of(const OptionValues& options, const char* name, double usual) {
  return text::number_in<double>(word_of(options, name)).value_or(usual);
}

/// The share of the exchanges after which one cut comes.
double prune_at_of(const OptionValues& options) {
  return number_of(options, "prune-at", train::TrainOptions().prune_at);
}

/// Phases of their own last for epochs, and how many images those have is not known here: the penalty of one acts in
/// all exchanges, and the cuts before fine-tuning come in their middle.
void join_phases(OptionValues& options) {
  const double sparse = number_of(options, "sparse-epochs", 0), finetuning = number_of(options, "finetune-epochs", 0);
  const bool trains = number_of(options, "exchanges", 0) > 0 ||
                      number_of(options, "epochs", train::TrainOptions().epochs) > 0 || sparse > 0;
  for (const char* of_phase : {"sparse-epochs", "sparse-lr", "sparse-lr-schedule", "sparse-weight-decay",
                               "finetune-epochs", "finetune-lr", "finetune-lr-schedule"}) {
    options.erase(of_phase);
  }
  if (finetuning > 0 && options.contains("prune-to")) options["prune-at"] = trains ? "0.5" : "1e-06";
}

bool is_one_shot(const OptionValues& options) {
  return word_of(options, "strategy") == "one_shot";
}

/// The last exchange with open masks at most, of options that are cut short.
int64_t last_open_of(const OptionValues& options, int64_t exchanges) {
  if (is_one_shot(options)) {
    return std::llround(prune_at_of(options) * static_cast<double>(exchanges));
  }
  const auto local_after = static_cast<int64_t>(number_of(options, "local-after", 0));
  return std::max((exchanges + 1) / 2, local_after + std::max<int64_t>(2, (exchanges - local_after) / 2));
}

/// So that an exchange follows the one with the cut.
void bring_cut_forward(OptionValues& options, int64_t exchanges) {
  const bool masks = is_one_shot(options) && word_of(options, "groups") != "none";
  if (!masks && !options.contains("prune-to")) return;
  const auto all = static_cast<double>(exchanges);
  const double cut = std::ceil(all * prune_at_of(options));
  if (cut + 1 >= all) options["prune-at"] = "0.5";
}

/// So that steps follow the last of several cuts.
void bring_cuts_together(OptionValues& options, int64_t exchanges) {
  const double further = number_of(options, "prune-steps", 1) - 1;
  if (further < 1 || !options.contains("prune-to")) return;
  const auto all = static_cast<double>(exchanges);
  const double first = std::ceil(all * prune_at_of(options));
  const double most = std::floor(std::clamp((all - first - 1) / further, 0.0, all));
  if (number_of(options, "prune-every", 1) > most) options["prune-every"] = fmt::format("{:.0f}", most);
}

/// What counts epochs or steps from the start and may be longer than all that is left.
void drop_rise_and_milestones(OptionValues& options) {
  if (options.contains("warmup-epochs")) options["warmup-epochs"] = "0";
  for (const char* rise : {"warmup-steps", "sparse-warmup", "dgc-warmup-epochs", "powersgd-start"}) options.erase(rise);
  if (word_of(options, "lr-schedule") != "milestones") return;
  options["lr-schedule"] = "\"constant\"";
  for (const char* of_milestones : {"lr-milestones", "lr-gamma"}) options.erase(of_milestones);
}

}  // namespace

OptionValues cut_short(OptionValues options, int64_t exchanges) {
  join_phases(options);
  bring_cut_forward(options, exchanges);
  bring_cuts_together(options, exchanges);
  drop_rise_and_milestones(options);
  options.erase("epochs");
  options["exchanges"] = std::to_string(exchanges);
  // what counts exchanges of the whole run
  const auto shorten = [&](const char* option, int64_t to) {
    if (options.contains(option)) options[option] = std::to_string(to);
  };
  const auto at_most = [&](const char* option, int64_t most) {
    if (number_of(options, option, 0) > static_cast<double>(most)) options[option] = std::to_string(most);
  };
  const int64_t quarter = (exchanges + 3) / 4;
  at_most("local-after", quarter);
  at_most("outer-from", quarter);
  const auto local_after = static_cast<int64_t>(number_of(options, "local-after", 0));
  at_most("prune-start", std::max(quarter, local_after + 1));  // weights are exchanged by then
  if (!options.contains("prune-to")) at_most("prune-every", (exchanges + 1) / 2);
  shorten("prune-end", (exchanges + 1) / 2);
  shorten("freeze-after", (exchanges + 1) / 2);
  options.erase("freeze-when-stable");                                              // not before that
  if (last_open_of(options, exchanges) + 2 >= exchanges) options.erase("overlap");  // nothing is left to overlap
  return options;
}

std::vector<Job> timings_of(const std::vector<Job>& runs, int64_t exchanges) {
  std::vector<Job> jobs = runs;
  for (auto& job : jobs) {
    job.kind = JobKind::kTiming;
    job.directory = job.name + "/timing";
    job.options = cut_short(job.options, exchanges);
    for (const char* aside : {"eval-every", "checkpoint-every"}) job.options[aside] = std::string("0");
  }
  return jobs;
}

}  // namespace prunex::study
