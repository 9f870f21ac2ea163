#include "report/tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "prunex/text/one_line.h"

namespace prunex::report {
namespace {

using Options = std::map<std::string, std::string>;

const std::set<std::string> kNotIdentity = {"seed",         "run-dir",
                                            "data-dir",     "quiet",
                                            "tensorboard",  "trace",
                                            "resume",       "resume-exchange",
                                            "eval-every",   "interface",
                                            "config",       "check",
                                            "log",          "max-model-size",
                                            "join-timeout", "checkpoint-every",
                                            "comm-timeout", "heartbeat-timeout",
                                            "ports",        "data-threads",
                                            "prefetch",     "max-broken",
                                            "join",         "secret-file",
                                            "encrypt"};
/// What makes a task, and what it is where nothing is said.
const std::vector<std::pair<std::string, std::string>> kTask = {
    {"dataset", ""}, {"test", ""},   {"samples", "10000"}, {"train-limit", "0"}, {"test-limit", "0"},
    {"model", ""},   {"width", "1"}, {"norm", "batch"},    {"partition", "iid"}};

/// The first finished run of every seed, and the further runs of seeds, finished or not.
std::pair<std::vector<const Run*>, std::vector<const Run*>> by_repetition(const std::vector<const Run*>& runs) {
  std::vector<const Run*> first, further;
  std::set<std::string> seeds;
  for (const bool finished : {true, false}) {
    for (const Run* run : runs) {
      if (run->summary.has_value() != finished) continue;
      const std::string seed = run->option("seed");
      const bool is_first = seed.empty() || seeds.insert(seed).second;
      if (!is_first) further.push_back(run);
      if (is_first && finished) first.push_back(run);
    }
  }
  return {first, further};
}

/// What the run was told.
const Options& told(const Run& run) {
  return run.declared.empty() ? run.options : run.declared;
}

/// Whether a value names a folder for each node.
bool is_by_node(const std::string& value) {
  return value.find("{node}") != std::string::npos;
}

/// `data-dir` where it names a folder for each node; else empty.
std::string folders_by_node(const Run& run) {
  const auto found = told(run).find("data-dir");
  return found != told(run).end() && is_by_node(found->second) ? found->second : "";
}

std::string task_key(const Run& run) {
  std::string key = folders_by_node(run) + "\n";
  for (const auto& [name, usual] : kTask) {
    const auto value = run.option(name);
    key += (value.empty() ? usual : value) + "\n";
  }
  return key;
}

std::string title_of(const Run& run) {
  std::string title = run.option("model").empty() ? "unknown network" : run.option("model");
  if (const auto width = run.option("width"); !width.empty() && width != "1") title += " x " + width;
  if (const auto norm = run.option("norm"); !norm.empty() && norm != "batch") title += " with " + norm + " norm";
  title += " on " + (run.option("dataset").empty() ? "unknown data" : run.option("dataset"));
  const auto limit = run.option("train-limit"), samples = run.option("samples");
  if (!limit.empty() && limit != "0") {
    title += ", first " + limit + " images";
  } else if (run.option("dataset") == "synthetic" && !samples.empty()) {
    title += ", " + samples + " images";
  }
  if (const auto partition = run.option("partition"); !partition.empty() && partition != "iid") {
    title += ", partition " + partition;
  }
  if (const auto folders = folders_by_node(run); !folders.empty()) title += " in " + folders;
  if (const auto test = run.option("test"); !test.empty()) title += ", tested on " + test;
  const auto of_tests = run.option("test-limit");
  if (!of_tests.empty() && of_tests != "0") title += ", first " + of_tests + " test images";
  return title;
}

Options shared_options(const std::vector<Variant>& variants) {
  Options shared = identity(variants.front().first());
  for (const auto& variant : variants) {
    const Options mine = identity(variant.first());
    std::erase_if(shared, [&](const auto& option) {
      const auto found = mine.find(option.first);
      return found == mine.end() || found->second != option.second;
    });
  }
  return shared;
}

constexpr size_t kLongestName = 40;

/// "dense" of runs/dense-3, and of runs/dense/3.
std::string name_by_directory(const Run& run) {
  constexpr const char* kDigits = "0123456789";
  std::filesystem::path path(run.directory);
  if (!path.has_filename()) path = path.parent_path();
  const bool is_seed = path.filename().string().find_first_not_of(kDigits) == std::string::npos;
  if (is_seed && path.parent_path().has_filename()) path = path.parent_path();
  std::string name = path.filename().string();
  const auto end = name.find_last_not_of(kDigits);
  if (end != std::string::npos && end > 0 && end + 1 < name.size() && name[end] == '-') name.resize(end);
  return name;
}

/// The strategy, and what else distinguishes it if that is short.
std::string name_by_options(const Variant& variant, const Options& shared) {
  std::string name = variant.strategy();
  for (const auto& [key, value] : identity(variant.first())) {
    if (key != "strategy" && !shared.contains(key)) name += fmt::format(" {}={}", key, value);
  }
  return name.empty() || name.size() > kLongestName ? name_by_directory(variant.first()) : name;
}

/// Names that occur twice get a number.
void make_unique(Task& task) {
  std::map<std::string, int> seen;
  for (auto& variant : task.variants) {
    const int count = ++seen[variant.name];
    if (count > 1) variant.name += fmt::format(" ({})", count);
  }
}

void name_variants(Task& task) {
  task.shared = shared_options(task.variants);
  int style = 0;
  for (auto& variant : task.variants) {
    variant.style = style++;
    if (variant.name.empty()) variant.name = name_by_options(variant, task.shared);
  }
  make_unique(task);
}

/// Numbers of a task's variants, by name and identity.
using Numbers = std::map<std::pair<std::string, Options>, size_t>;

void add_run(Task& task, Numbers& numbers, const Run& run) {
  const auto [entry, is_new] = numbers.try_emplace({run.name, identity(run)}, task.variants.size());
  if (is_new) task.variants.push_back({.name = run.name});
  task.variants[entry->second].runs.push_back(&run);
}

using Options = std::map<std::string, std::string>;

// What a reader wants to know first, in this order.
const std::vector<std::string> kFirst = {"dataset",   "train-limit", "model",          "width",      "norm",
                                         "partition", "nodes",       "ranks-per-node", "sites",      "strategy",
                                         "epochs",    "exchanges",   "local-steps",    "batch-size", "lr",
                                         "groups",    "keep",        "payload",        "sparse",     "prune-to"};

void add(std::string& words, const std::string& name, const std::string& value) {
  if (value.empty() || value == "auto" || value == "false") return;
  if (!words.empty()) words += ' ';
  words += fmt::format("--{}", name);
  if (value != "true") words += fmt::format(" {}", text::shell_word(value));
}

std::string words_of(Options options) {
  std::string words;
  options.erase("directory");  // the identity of a run without options
  for (const auto& file : kRunFiles) {
    const auto of = options.extract(file.key);
    if (of) options[file.option] = fmt::format("{} of {}", file.file, of.mapped());
  }
  for (const auto& name : kFirst) {
    if (const auto option = options.extract(name)) add(words, name, option.mapped());
  }
  for (const auto& [name, value] : options) add(words, name, value);
  return words;
}

}  // namespace

std::vector<const Run*> Variant::finished() const {
  return by_repetition(runs).first;
}

std::vector<const Run*> Variant::repeated() const {
  return by_repetition(runs).second;
}

bool Variant::is_later_stage() const {
  return !runs.empty() && runs.front()->declared.contains("model-of");
}

Options identity(const Run& run) {
  Options options = told(run);
  std::erase_if(options, [](const auto& option) {
    return kNotIdentity.contains(option.first) && !(option.first == "data-dir" && is_by_node(option.second));
  });
  if (options.empty()) options = {{"directory", run.directory}};
  return options;
}

std::vector<Task> tasks_of(const std::vector<Run>& runs) {
  std::vector<std::string> keys;
  std::vector<Task> tasks;
  std::vector<Numbers> variants;
  for (const auto& run : runs) {
    const auto key = task_key(run);
    const auto found = std::find(keys.begin(), keys.end(), key);
    const auto number = static_cast<size_t>(found - keys.begin());
    if (found == keys.end()) {
      keys.push_back(key);
      tasks.push_back({.title = title_of(run)});
      variants.emplace_back();
    }
    add_run(tasks[number], variants[number], run);
  }
  for (auto& task : tasks) name_variants(task);
  return tasks;
}

Spread over_seeds(const Variant& variant, const Quantity& quantity) {
  std::vector<double> values;
  for (const Run* run : variant.finished()) {
    if (const auto value = quantity(*run)) values.push_back(*value);
  }
  return spread_of(values);
}

std::map<std::string, double> by_seed(const Variant& variant, const Quantity& quantity) {
  std::map<std::string, double> values;
  for (const Run* run : variant.finished()) {
    if (const auto value = quantity(*run)) values[run->option("seed")] = *value;
  }
  return values;
}

std::optional<Interval> whisker(const Spread& spread) {
  if (spread.count < 2) return std::nullopt;
  return Interval{spread.low, spread.high};
}

std::vector<Point> over_seeds(const Variant& variant, const Curve& curve) {
  std::map<int64_t, std::pair<std::vector<double>, std::vector<double>>> by_exchange;
  const auto finished = variant.finished();
  size_t curves = 0;
  for (const Run* run : finished.empty() ? variant.runs : finished) {
    const std::vector<Sample> samples = curve(*run);
    if (!samples.empty()) ++curves;
    for (const auto& [exchange, x, y] : samples) {
      by_exchange[exchange].first.push_back(x);
      by_exchange[exchange].second.push_back(y);
    }
  }
  std::vector<Point> points;
  for (const auto& [exchange, values] : by_exchange) {
    if (!finished.empty() && values.first.size() < curves) continue;
    const Spread y = spread_of(values.second);
    points.push_back({spread_of(values.first).mean, y.mean, whisker(y)});
  }
  return points;
}

std::string count_of(size_t n, const std::string& noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
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
