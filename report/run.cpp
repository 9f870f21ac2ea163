#include "report/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "report/recorded_exchanges.h"

namespace prunex::report {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// The lines `name=value` that a run writes.
std::map<std::string, std::string> parse_options(std::istream& file) {
  std::map<std::string, std::string> options;
  for (std::string line; std::getline(file, line);) {
    const auto equals = line.find('=');
    if (line.empty() || line.front() == '#' || equals == std::string::npos) continue;
    options[line.substr(0, equals)] = unquoted(line.substr(equals + 1));
  }
  return options;
}

double number(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0.0;
}
int64_t whole(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<int64_t>() : 0;
}
std::string word(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}
std::optional<double> maybe(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}
json part(const json& object, const char* key) {
  return object.contains(key) ? object[key] : json::object();
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
  Exchange exchange{.index = whole(line, "exchange"), .step = whole(line, "step"), .samples = whole(line, "samples")};
  exchange.loss = number(line, "loss");
  exchange.learning_rate = number(line, "lr");
  exchange.accuracy = maybe(line, "accuracy");
  exchange.keep = maybe(line, "keep").value_or(1);
  exchange.mask_changes = whole(line, "mask_changes");
  exchange.frozen = line.value("frozen", false);
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
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || (file.eof() && !json::accept(line))) continue;
    exchanges.push_back(parse_exchange(json::parse(line)));
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

Summary parse_summary(const json& object) {
  Summary summary{
      .strategy = word(object, "strategy"), .model = word(object, "model"), .dataset = word(object, "dataset")};
  summary.exchanges = whole(object, "exchanges");
  summary.steps = whole(object, "steps");
  summary.samples = whole(object, "samples");
  summary.accuracy = number(object, "accuracy");
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
  for (const auto& group : structure.at("groups")) {
    groups.push_back({group.at("name"), group.at("size"), group.at("kept").get<std::vector<int64_t>>()});
  }
  return groups;
}

std::vector<Span> parse_trace(const json& trace) {
  std::vector<Span> spans;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    spans.push_back({.phase = event.at("name"),
                     .node = event.at("pid"),
                     .rank = event.at("tid"),
                     .exchange = event.at("args").at("exchange"),
                     .begin = event.at("ts").get<double>() / 1e6,
                     .seconds = event.at("dur").get<double>() / 1e6});
  }
  return spans;
}

/// Reads a file if it is there.
void read_file(Run& run, const char* name, const std::function<void(std::istream&)>& read) {
  std::ifstream file(run.directory + "/" + name);
  if (!file) return;
  try {
    read(file);
  } catch (const std::exception& error) {
    run.problems.push_back(fmt::format("{}/{}: {}", run.directory, name, error.what()));
  }
}

}  // namespace

std::string unquoted(std::string text) {
  const bool quoted = text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front();
  return quoted ? text.substr(1, text.size() - 2) : text;
}

Messages count_messages(const json& summary) {
  if (summary.contains("messages")) return {whole(summary, "messages"), whole(summary, "flat_messages")};
  const json traffic = part(summary, "traffic");
  return {count_operations(traffic, {"rail", "site", "cross"}), count_operations(traffic, {"flat"})};
}

std::string Run::option(const std::string& key) const {
  if (const auto found = options.find(key); found != options.end()) return found->second;
  if (!summary) return "";
  if (key == "strategy") return summary->strategy;
  if (key == "model") return summary->model;
  return key == "dataset" ? summary->dataset : "";
}

int64_t Run::nodes() const {
  const auto text = option("nodes");
  return text.empty() ? 1 : std::max<int64_t>(1, std::atoll(text.c_str()));
}

int64_t Run::ranks() const {
  const auto text = option("ranks-per-node");
  if (text.find(',') == std::string::npos) return nodes() * std::max<int64_t>(1, std::atoll(text.c_str()));
  int64_t ranks = 0;
  std::istringstream list(text);
  for (std::string one; std::getline(list, one, ',');) ranks += std::atoll(one.c_str());
  return ranks;
}

bool is_run_directory(const std::string& directory) {
  return fs::is_regular_file(directory + "/metrics.jsonl") || fs::is_regular_file(directory + "/summary.json");
}

Run read_run(const std::string& directory) {
  Run run{.directory = directory};
  read_file(run, "config.toml", [&](std::istream& file) { run.options = parse_options(file); });
  read_file(run, "metrics.jsonl", [&](std::istream& file) { run.exchanges = parse_exchanges(file); });
  read_file(run, "summary.json", [&](std::istream& file) { run.summary = parse_summary(json::parse(file)); });
  read_file(run, "structure.json", [&](std::istream& file) { run.groups = parse_groups(json::parse(file)); });
  read_file(run, "trace.json", [&](std::istream& file) { run.trace = parse_trace(json::parse(file)); });
  return run;
}

std::map<std::string, std::string> declared_options(const json& entry) {
  std::map<std::string, std::string> options;
  if (!entry.contains("options")) return options;
  for (const auto& [name, value] : entry["options"].items()) options[name] = unquoted(value.get<std::string>());
  return options;
}

Run recorded_run(const std::string& directory, const json& entry) {
  Run run{.directory = directory};
  run.options = declared_options(entry);
  run.summary = parse_summary(entry.at("summary"));
  if (entry.contains("exchanges")) run.exchanges = exchanges_of(entry["exchanges"]);
  if (entry.contains("groups")) run.groups = parse_groups(entry);
  return run;
}

}  // namespace prunex::report
