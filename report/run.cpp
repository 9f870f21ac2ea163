#include "report/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "prunex/text/json.h"
#include "prunex/text/settings.h"
#include "report/json_fields.h"
#include "report/recorded_exchanges.h"

namespace prunex::report {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uintmax_t kLargestMetrics = 1'000'000'000;
constexpr int64_t kMostUnits = 1'000'000;  // of a group
constexpr int64_t kMostNodes = 1'000'000;

/// What is no number counts as 1.
int64_t count_from(const std::string& text) {
  return std::clamp<int64_t>(std::atoll(text.c_str()), 1, kMostNodes);
}

std::map<std::string, std::string> parse_options(std::istream& file) {
  std::map<std::string, std::string> options;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (const auto& setting : text::read_settings(text, "line")) options[setting.name] = setting.value;
  return options;
}

Seconds parse_seconds(const json& object) {
  return {.local = number(object, "local"),
          .intra = number(object, "intra"),
          .project = number(object, "project"),
          .inter = number(object, "inter"),
          .dual = number(object, "dual"),
          .evaluate = number(object, "evaluate"),
          .total = number(object, "total")};
}

Residuals parse_residuals(const json& object) {
  return {number(object, "r_intra"), number(object, "s_intra"), number(object, "r_inter"), number(object, "s_inter")};
}

Exchange parse_exchange(const json& line) {
  if (!line.is_object()) throw std::invalid_argument(fmt::format("got {}, wanted an object", line.type_name()));
  Exchange exchange{.index = whole(line, "exchange"), .step = whole(line, "step"), .samples = whole(line, "samples")};
  exchange.loss = number(line, "loss");
  exchange.learning_rate = number(line, "lr");
  exchange.accuracy = maybe(line, "accuracy");
  exchange.keep = maybe(line, "keep").value_or(1);
  exchange.mask_changes = whole(line, "mask_changes");
  exchange.frozen = part(line, "frozen") == json(true);
  exchange.parameters = whole(line, "parameters");
  exchange.macs = whole(line, "macs");
  const json residuals = part(line, "residuals");
  exchange.residuals = parse_residuals(residuals);
  const json tensors = part(residuals, "by_tensor");
  for (const auto& [name, of_tensor] : tensors.items()) {
    exchange.residuals_by_tensor[name] = parse_residuals(of_tensor);
  }
  for (const auto& of_rank : part(residuals, "by_rank")) exchange.residuals_by_rank.push_back(parse_residuals(of_rank));
  exchange.seconds = parse_seconds(part(line, "seconds"));
  exchange.inter_node_bytes = whole(line, "inter_node_bytes");
  exchange.inter_node_bytes_bound = whole(line, "inter_node_bytes_bound");
  exchange.intra_node_bytes = whole(line, "intra_node_bytes");
  return exchange;
}

/// A last line that is cut short belongs to a run that is being written.
std::vector<Exchange> parse_exchanges(std::istream& file) {
  std::vector<Exchange> exchanges;
  int64_t line_number = 0;
  for (std::string line; std::getline(file, line);) {
    ++line_number;
    if (line.size() > kLargestLine || exchanges.size() == kMostExchanges) {
      throw std::invalid_argument(fmt::format("line {}: wanted at most {} bytes in a line and {} exchanges",
                                              line_number, kLargestLine, kMostExchanges));
    }
    if (line.empty() || (file.eof() && !text::is_json(line))) continue;
    const json exchange = text::parse_json(line, line_number);
    exchanges.push_back(within(fmt::format("line {}", line_number), [&] { return parse_exchange(exchange); }));
  }
  return exchanges;
}

int64_t count_operations(const json& traffic, const std::vector<const char*>& groups) {
  int64_t count = 0;
  for (const char* group : groups) {
    const json operations = part(traffic, group);
    for (const auto& [name, counts] : operations.items()) count += whole(counts, "count");
  }
  return count;
}

/// As one would write it on the command line: "4,2,1" for a list.
std::string option_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.is_number() ? value.dump() : "";
  std::string list;
  for (const auto& one : value) {
    if (!list.empty()) list += ',';
    list += option_text(one);
  }
  return list;
}

std::map<std::string, std::string> summary_options(const json& object) {
  std::map<std::string, std::string> options;
  for (const std::string name : {"strategy", "model", "dataset", "seed", "nodes", "ranks-per-node", "sites"}) {
    std::string key = name;
    std::replace(key.begin(), key.end(), '-', '_');
    if (auto text = option_text(part(object, key.c_str())); !text.empty()) options[name] = std::move(text);
  }
  return options;
}

/// What a strategy sends, for records of before summaries said so.
bool sent_gradients(const std::string& strategy) {
  return strategy == "ddp" || strategy == "prunetrain" || strategy == "top_k" || strategy == "powersgd";
}

Summary parse_summary(const json& object) {
  Summary summary{.options = summary_options(object), .version = word(object, "version")};
  const std::string strategy = word(object, "strategy"), sends = word(object, "sends");
  summary.sends_gradients = sends.empty() ? sent_gradients(strategy) : sends == "gradients";
  summary.overlaps_backward = object.contains("overlaps_backward") ? required<bool>(object, "overlaps_backward")
                                                                   : strategy == "ddp" || strategy == "prunetrain";
  summary.exchanges = whole(object, "exchanges");
  summary.steps = whole(object, "steps");
  summary.samples = whole(object, "samples");
  summary.accuracy = required<double>(object, "accuracy");
  if (!(summary.accuracy >= 0 && summary.accuracy <= 1)) {
    throw std::invalid_argument(fmt::format("accuracy: got {}, wanted 0 to 1", summary.accuracy));
  }
  summary.parameters_compact = whole(object, "parameters_compact");
  summary.macs_compact = whole(object, "macs_compact");
  summary.inter_node_bytes = whole(object, "inter_node_bytes");
  summary.inter_node_bytes_bound = whole(object, "inter_node_bytes_bound");
  summary.inter_node_bytes_ddp = whole(object, "inter_node_bytes_ddp");
  summary.inter_node_bytes_ddp_flat = whole(object, "inter_node_bytes_ddp_flat");
  summary.messages = count_messages(object);
  summary.seconds = parse_seconds(part(object, "seconds"));
  return summary;
}

std::vector<KeptUnits> parse_groups(const json& structure) {
  std::vector<KeptUnits> groups;
  each(structure, "groups", [&](const json& group) {
    groups.push_back({required<std::string>(group, "name"), required_whole(group, "size"),
                      required<std::vector<int64_t>>(group, "kept")});
    const auto size = groups.back().size;
    if (size < 0 || size > kMostUnits) {
      throw std::invalid_argument(fmt::format("size: got {}, wanted 0 to {}", size, kMostUnits));
    }
  });
  return groups;
}

std::vector<Span> parse_trace(const json& trace) {
  std::vector<Span> spans;
  each(trace, "traceEvents", [&](const json& event) {
    if (member(event, "ph") != "X") return;
    spans.push_back({.phase = required<std::string>(event, "name"),
                     .node = required_whole(event, "pid"),
                     .rank = required_whole(event, "tid"),
                     .exchange = required_whole(member(event, "args"), "exchange"),
                     .begin = required<double>(event, "ts") / 1e6,
                     .seconds = required<double>(event, "dur") / 1e6});
  });
  return spans;
}

/// Reads a file if it is there.
void read_file(Run& run, const char* name, const std::function<void(std::istream&)>& read,
               uintmax_t most = kLargestFile) {
  const std::string path = run.directory + "/" + name;
  std::error_code error;
  if (!fs::exists(path, error)) return;
  try {
    std::ifstream file = open_bounded(path, most);
    read(file);
  } catch (const std::exception& error) {
    run.problems.push_back(fmt::format("{}/{}: {}", run.directory, name, reason(error)));
  }
}

}  // namespace

Messages count_messages(const json& summary) {
  if (summary.contains("messages")) return {whole(summary, "messages"), whole(summary, "flat_messages")};
  const json traffic = part(summary, "traffic");
  return {count_operations(traffic, {"rail", "site", "cross"}), count_operations(traffic, {"flat"})};
}

std::string Run::option(const std::string& key) const {
  if (const auto found = options.find(key); found != options.end()) return found->second;
  if (!summary) return "";
  const auto found = summary->options.find(key);
  return found != summary->options.end() ? found->second : "";
}

int64_t Run::nodes() const {
  const auto text = option("nodes");
  return text.empty() ? 1 : count_from(text);
}

int64_t Run::ranks() const {
  const auto text = option("ranks-per-node");
  if (text.find(',') == std::string::npos) return nodes() * count_from(text);
  int64_t ranks = 0;
  std::istringstream list(text);
  for (std::string one; std::getline(list, one, ',');) ranks += count_from(one);
  return ranks;
}

bool is_run_directory(const std::string& directory) {
  return fs::is_regular_file(directory + "/metrics.jsonl") || fs::is_regular_file(directory + "/summary.json");
}

Run read_run(const std::string& directory) {
  Run run{.directory = directory};
  read_file(run, "config.toml", [&](std::istream& file) { run.options = parse_options(file); });
  read_file(
      run, "metrics.jsonl", [&](std::istream& file) { run.exchanges = parse_exchanges(file); }, kLargestMetrics);
  read_file(run, "summary.json", [&](std::istream& file) { run.summary = parse_summary(read_json(file)); });
  read_file(run, "structure.json", [&](std::istream& file) { run.groups = parse_groups(read_json(file)); });
  read_file(run, "trace.json", [&](std::istream& file) { run.trace = parse_trace(read_json(file)); });
  return run;
}

bool is_summary(const json& object) {
  if (!object.is_object()) return false;
  try {
    parse_summary(object);
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

std::map<std::string, std::string> declared_options(const json& entry) {
  std::map<std::string, std::string> options;
  const json declared = part(entry, "options");
  within("options", [&] {
    for (const auto& [name, value] : declared.items()) {
      options[name] = text::word_of(required<std::string>(declared, name.c_str()));
    }
  });
  return options;
}

Run recorded_run(const std::string& comparison, const json& entry) {
  const auto directory = required<std::string>(entry, "directory");
  Run run{.directory = fs::path(comparison) / directory};
  try {
    run.summary = parse_summary(member(entry, "summary"));
  } catch (const std::invalid_argument& error) {
    run.problems.push_back(fmt::format("{}/compare.json: {}: summary: {}", comparison, directory, error.what()));
  }
  if (entry.contains("exchanges")) {
    run.exchanges = within("exchanges", [&] { return exchanges_of(entry["exchanges"]); });
  }
  if (entry.contains("groups")) run.groups = parse_groups(entry);
  return run;
}

}  // namespace prunex::report
