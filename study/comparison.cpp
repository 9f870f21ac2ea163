#include "study/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <stdexcept>

#include "prunex/text/one_line.h"
#include "prunex/text/option.h"
#include "prunex/text/read_file.h"
#include "prunex/text/settings.h"
#include "prunex/text/toml.h"

namespace prunex::study {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestName = 100;  // it becomes a directory
const std::set<std::string> kOwnFiles{"compare.json", "report.html", "verify", "verify.json"};

class Reader {
 public:
  Reader(const std::string& path, const FindOption& option) : path_(path), option_(option) {}

  Comparison read() {
    const toml::table file = parse();
    Comparison comparison{.path = path_};
    expect_keys(file, {"seeds", "common", "pilot", "run"});
    if (const auto* common = table(file, "common")) read_common(*common);
    if (const auto* pilot = table(file, "pilot")) read_pilot(*pilot, comparison);
    const auto seeds = file.get("seeds") ? whole_numbers(*file.get("seeds"), "seeds") : std::vector<int64_t>{0};
    const auto* runs = file.get_as<toml::array>("run");
    if (runs == nullptr || runs->empty()) fail(file, "no [[run]]");
    for (const auto& run : *runs) comparison.runs.push_back(read_run(run, seeds));
    for (NamedRun& run : comparison.runs) add_pilot(file, run);
    return comparison;
  }

 private:
  [[noreturn]] void fail(const toml::node& node, const std::string& what) const {
    throw std::invalid_argument(fmt::format("compare: {}:{}: {}", path_, node.source().begin.line, what));
  }

  toml::table parse() const {
    std::string text;
    try {
      text = text::read_file(path_, text::kLargestToml);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(fmt::format("compare: {}: {}, wanted a TOML file", path_, error.what()));
    }
    return text::parse_toml(text, "compare: " + path_);
  }

  void expect_keys(const toml::table& table, const std::set<std::string_view>& known) const {
    for (const auto& [key, value] : table) {
      if (!known.contains(key.str())) fail(value, fmt::format("'{}' is not known here", text::one_line(key.str())));
    }
  }

  const toml::table* table(const toml::table& file, const char* name) const {
    const auto* node = file.get(name);
    if (node != nullptr && !node->is_table()) fail(*node, fmt::format("{} must be a table, [{}]", name, name));
    return node == nullptr ? nullptr : node->as_table();
  }

  OptionValues options_of(const toml::table& table, const std::set<std::string_view>& others = {}) const {
    OptionValues options;
    for (const auto& [key, value] : table) {
      const std::string name(key.str());
      if (others.contains(name)) continue;
      if (option_(name) == nullptr) {
        fail(value, fmt::format("'{}' is not an option of prunex train that a file may set", text::one_line(name)));
      }
      if (name == "seed" && others.contains("seeds")) fail(value, "'seed' is set by seeds = [...]");
      options[name] = text_of(value, name);
    }
    return options;
  }

  /// Sets what `over` says, which wins over what `options` say in other words: `exchanges` over `epochs`.
  void lay_over(OptionValues& options, const OptionValues& over) const {
    for (const auto& [name, value] : over) {
      const std::string& alternative = option_(name)->alternative;
      if (!over.contains(alternative)) options.erase(alternative);
      options[name] = value;
    }
  }

  void read_common(const toml::table& common) {
    if (const auto* seed = common.get("seed")) fail(*seed, "'seed' is set by seeds = [...], of pilots in [pilot]");
    common_ = options_of(common);
  }

  std::string text_of(const toml::node& node, const std::string& name) const {
    if (!node.is_string() && !node.is_number() && !node.is_boolean()) {
      fail(node, fmt::format("{}: wanted a word, a number, true or false", name));
    }
    if (const auto number = node.as_floating_point()) return fmt::format("{}", number->get());
    return text::toml_text(node);
  }

  std::vector<double> numbers(const toml::node& node, const char* name) const {
    std::vector<double> found;
    const auto* list = node.as_array();
    if (list == nullptr || list->empty()) fail(node, fmt::format("{}: wanted a list of numbers, [1, 2]", name));
    for (const auto& item : *list) {
      const auto value = item.value<double>();
      if (!value) fail(item, fmt::format("{}: wanted a list of numbers, [1, 2]", name));
      if (std::find(found.begin(), found.end(), *value) != found.end()) {
        fail(item, fmt::format("{}: {} is there twice", name, *value));
      }
      found.push_back(*value);
    }
    return found;
  }
  /// "0.1..0.4": 0.1, 0.2, 0.4.
  std::vector<double> doublings(const toml::node& node, const std::string& range) const {
    const size_t dots = std::min(range.find(".."), range.size());
    const auto low = text::number_in<double>(range.substr(0, dots));
    const auto high = text::number_in<double>(range.substr(std::min(dots + 2, range.size())));
    std::vector<double> rates;
    for (double rate = low.value_or(0); high && rate > 0 && rate <= *high * 1.001 && rates.size() < kMostRates;) {
      rates.push_back(rate);
      rate *= 2;
    }
    if (rates.empty() || std::abs(rates.back() / *high - 1) > 1e-3) {
      fail(node, fmt::format("rates: got '{}', wanted a list of numbers, or LOW..HIGH with doublings between, 0.1..0.8",
                             text::one_line(range)));
    }
    return rates;
  }
  std::vector<int64_t> whole_numbers(const toml::node& node, const char* name) const {
    std::vector<int64_t> found;
    for (const double number : numbers(node, name)) {
      if (number < 0 || number != static_cast<double>(static_cast<int64_t>(number))) {
        fail(node, fmt::format("{}: got {}, wanted whole numbers from 0 on", name, number));
      }
      found.push_back(static_cast<int64_t>(number));
    }
    return found;
  }

  std::string name_of(const toml::table& run) {
    const auto name = run["name"].value<std::string>();
    if (!name) fail(run, "a [[run]] wants name = \"...\"");
    const bool plain = !name->empty() && name->find_first_not_of(
                                             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                             "0123456789-_.+") == std::string::npos;
    if (!plain || name->front() == '.' || name->size() > kLongestName) {
      fail(run, fmt::format("name: got '{}', wanted at most {} letters, digits, and any of - _ . +",
                            text::one_line(*name), kLongestName));
    }
    if (kOwnFiles.contains(*name)) fail(run, fmt::format("name: got '{}', a file of the comparison itself", *name));
    if (!names_.insert(*name).second) fail(run, fmt::format("there are two runs of the name '{}'", *name));
    return *name;
  }

  NamedRun read_run(const toml::node& node, const std::vector<int64_t>& seeds) {
    const auto* table = node.as_table();
    if (table == nullptr) fail(node, "run must be tables, [[run]]");
    NamedRun run{.name = name_of(*table), .options = common_, .seeds = seeds};
    if (const auto* other = table->get("like")) take_over(*other, *table, run);
    std::set<std::string_view> own = {"name", "like", "rates", "seeds"};
    for (const auto& file : kRunFiles) own.insert(file.key);
    lay_over(run.options, options_of(*table, own));
    if (const auto* rates = table->get("rates")) {
      run.widens = rates->is_string();
      run.rates = run.widens ? doublings(*rates, **rates->as_string()) : numbers(*rates, "rates");
    }
    if (table->get("seeds")) run.seeds = whole_numbers(*table->get("seeds"), "seeds");
    if (!run.rates.empty() && table->get("lr")) fail(*table->get("lr"), "lr is chosen from rates");
    for (const auto& file : kRunFiles) {
      if (const auto* of = table->get(file.key)) take_file_of(*of, file, *table, run);
    }
    runs_.push_back(run);
    return run;
  }

  const NamedRun& run_before(const toml::node& node, const char* key) const {
    const auto name = node.value<std::string>();
    const auto found = std::find_if(runs_.begin(), runs_.end(), [&](const NamedRun& run) { return run.name == name; });
    if (found == runs_.end()) fail(node, fmt::format("{}: wanted the name of a [[run]] further up", key));
    return *found;
  }

  /// The options of another run. What is another run's besides, the table must say itself.
  void take_over(const toml::node& node, const toml::table& table, NamedRun& run) const {
    const NamedRun& other = run_before(node, "like");
    run.options = other.options;
    if (table.get("rates")) run.options.erase("lr");
    if (!other.rates.empty() && !table.get("rates") && !table.get("lr")) {
      fail(node,
           fmt::format("like: '{}' has rates, which pilots choose from; wanted lr or rates here, too", other.name));
    }
    for (const auto& [key, taken] : other.taken_from) {
      if (!table.get(key)) fail(node, fmt::format("like: '{}' has {}; wanted it here, too", other.name, key));
    }
  }

  static OptionValues network_of(const OptionValues& options) {
    OptionValues network;
    for (const char* name : {"model", "norm", "width"}) {
      if (options.contains(name)) network[name] = options.at(name);
    }
    return network;
  }

  /// It wins over what [common] or the run that it is like says of the option and those beside it.
  void take_file_of(const toml::node& node, const RunFile& file, const toml::table& table, NamedRun& run) const {
    const NamedRun& other = run_before(node, file.key);
    if (!run.rates.empty()) {
      fail(node, fmt::format("{} and rates: pilots go before there is a {}; wanted lr", file.key, file.file));
    }
    const auto replace = [&](std::string_view option) {
      if (table.get(option)) fail(*table.get(option), fmt::format("{} and {}: wanted one of them", file.key, option));
      run.options.erase(std::string(option));
    };
    replace(file.option);
    std::for_each(file.beside.begin(), file.beside.end(), replace);
    for (const int64_t seed : run.seeds) {
      if (std::find(other.seeds.begin(), other.seeds.end(), seed) != other.seeds.end()) continue;
      fail(node, fmt::format("{}: '{}' has no seed {}", file.key, other.name, seed));
    }
    run.taken_from[file.key] = other.name;
    if (std::string_view(file.option) != "model") return;
    run.stand_in = other.taken_from.contains(file.key) ? other.stand_in : network_of(other.options);
  }

  /// Its seed or its seeds.
  void read_pilot(const toml::table& pilot, Comparison& comparison) {
    const auto* seeds = pilot.get("seeds");
    if (seeds == nullptr) {
      pilot_ = options_of(pilot);
      return;
    }
    pilot_ = options_of(pilot, {"seeds"});
    comparison.pilot_seeds = whole_numbers(*seeds, "seeds");
  }

  /// Without held-out images a pilot has nothing to choose by.
  void add_pilot(const toml::table& file, NamedRun& run) const {
    if (run.rates.empty()) return;
    const auto held_out = pilot_.find("validation");
    const bool chooses = held_out != pilot_.end() && held_out->second != "0";
    if (!chooses) fail(file, fmt::format("run '{}' has rates: wanted [pilot] with validation = N", run.name));
    run.pilot = run.options;
    lay_over(run.pilot, pilot_);
  }

  const std::string path_;
  const FindOption& option_;
  OptionValues common_, pilot_;
  std::set<std::string> names_;
  std::vector<NamedRun> runs_;  // read so far
};

}  // namespace

std::string Job::title() const {
  switch (kind) {
    case JobKind::kPilot:
      return fmt::format("{} pilot, lr {}", name, rate) +
             (options.contains("seed") ? ", seed " + options.at("seed") : "");
    case JobKind::kTiming:
      return fmt::format("{} timing", name);
    case JobKind::kRun:
      break;
  }
  return fmt::format("{} seed {}", name, seed);
}

Comparison read_comparison(const std::string& path, const FindOption& option) {
  return Reader(path, option).read();
}

std::vector<Job> pilots_of(const Comparison& comparison) {
  std::vector<Job> jobs;
  for (const auto& run : comparison.runs) {
    for (const double rate : run.rates) {
      Job job{.name = run.name,
              .kind = JobKind::kPilot,
              .rate = rate,
              .directory = fmt::format("{}/pilot-{}", run.name, rate),
              .options = run.pilot};
      job.options["lr"] = fmt::format("{}", rate);
      if (comparison.pilot_seeds.empty()) jobs.push_back(job);
      for (const int64_t seed : comparison.pilot_seeds) {
        jobs.push_back(job);
        jobs.back().seed = seed;
        jobs.back().directory += fmt::format("-{}", seed);
        jobs.back().options["seed"] = std::to_string(seed);
      }
    }
  }
  return jobs;
}

std::vector<Job> jobs_of(const Comparison& comparison,
                         const std::function<std::optional<double>(const NamedRun&)>& rate_of) {
  std::vector<Job> jobs;
  size_t most = 0;
  for (const auto& run : comparison.runs) most = std::max(most, run.seeds.size());
  for (size_t i = 0; i < most; ++i) {
    for (const auto& run : comparison.runs) {
      const auto rate = run.rates.empty() ? std::nullopt : rate_of(run);
      if (i >= run.seeds.size() || (!run.rates.empty() && !rate)) continue;
      Job job{.name = run.name, .seed = run.seeds[i], .directory = fmt::format("{}/{}", run.name, run.seeds[i])};
      job.options = run.options;
      job.options["seed"] = std::to_string(job.seed);
      if (rate) job.options["lr"] = fmt::format("{}", *rate);
      job.stand_in = run.stand_in;
      for (const auto& [key, name] : run.taken_from) job.taken_from[key] = fmt::format("{}/{}", name, job.seed);
      jobs.push_back(std::move(job));
    }
  }
  return jobs;
}

std::vector<Job> first_seeds_of(const std::vector<Job>& runs) {
  std::vector<Job> jobs;
  std::set<std::string> names;
  std::copy_if(runs.begin(), runs.end(), std::back_inserter(jobs),
               [&](const Job& run) { return names.insert(run.name).second; });
  return jobs;
}

std::string path_for(const Job& job, const RunFile& file, const std::string& directory) {
  return fmt::format("{}/{}/{}", directory, job.taken_from.at(file.key), file.file);
}

void set_options(text::OptionList& list, const OptionValues& values) {
  for (const auto& [name, value] : values) {
    const std::string word = text::word_of(value);
    const fs::path path(word);
    const bool is_folder = name == "dataset" && path.has_parent_path() && !path.has_extension();
    list.find(name)->set(is_folder ? "." : word);  // which is there
  }
}

std::string config_of(const Job& job, const std::string& directory) {
  std::string lines;
  for (const auto& [name, value] : job.options) lines += fmt::format("{} = {}\n", name, value);
  for (const RunFile& file : kRunFiles) {
    if (!job.taken_from.contains(file.key)) continue;
    lines += fmt::format("{} = {}\n", file.option, text::toml_text(toml::value(path_for(job, file, directory))));
  }
  return lines;
}

}  // namespace prunex::study
