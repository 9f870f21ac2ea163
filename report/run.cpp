#include "report/run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include "prunex/text/json.h"
#include "prunex/text/settings.h"
#include "report/json_fields.h"

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

template <class Owner, size_t kSize>
Owner numbers_of(const json& object, const Field<Owner> (&fields)[kSize]) {
  Owner owner;
  for (const auto& field : fields) owner.*(field.of) = number(object, field.name);
  return owner;
}

Exchange parse_exchange(const json& line) {
  if (!line.is_object()) throw std::invalid_argument(fmt::format("got {}, wanted an object", line.type_name()));
  Exchange exchange;
  for (const auto& [name, of] : kCounted) exchange.*of = whole(line, name);
  exchange.loss = number(line, "loss");
  exchange.learning_rate = maybe(line, "lr");
  exchange.accuracy = maybe(line, "accuracy");
  exchange.keep = maybe(line, "keep").value_or(1);
  exchange.frozen = part(line, "frozen") == json(true);
  const json residuals = part(line, "residuals");
  exchange.residuals = numbers_of(residuals, kResiduals);
  const json tensors = part(residuals, "by_tensor");
  for (const auto& [name, of_tensor] : tensors.items()) {
    exchange.residuals_by_tensor[name] = numbers_of(of_tensor, kResiduals);
  }
  for (const auto& of_rank : part(residuals, "by_rank"))
    exchange.residuals_by_rank.push_back(numbers_of(of_rank, kResiduals));
  exchange.seconds = numbers_of(part(line, "seconds"), kSeconds);
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

const std::vector<std::string> kDirect{"all_gather", "all_gather_parts", "all_to_all", "reduce_scatter"};

/// Sum of what these operations of rank 0's groups between nodes have under `key`; of all operations without names.
int64_t sum_of(const json& traffic, const char* key, const std::vector<std::string>& operations = {},
               const std::vector<const char*>& groups = {"rail", "site", "cross"}) {
  int64_t sum = 0;
  for (const char* group : groups) {
    const json of_group = part(traffic, group);
    for (const auto& [name, counts] : of_group.items()) {
      const bool wanted =
          operations.empty() || std::find(operations.begin(), operations.end(), name) != operations.end();
      if (wanted) sum += whole(counts, key);
    }
  }
  return sum;
}

/// What may be missing, as a whole number.
std::optional<int64_t> maybe_whole(const json& object, const char* key) {
  return object.contains(key) ? std::optional(whole(object, key)) : std::nullopt;
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
  for (const std::string name :
       {"strategy", "model", "dataset", "seed", "nodes", "ranks-per-node", "sites", "local-steps"}) {
    std::string key = name;
    std::replace(key.begin(), key.end(), '-', '_');
    if (auto text = option_text(part(object, key.c_str())); !text.empty()) options[name] = std::move(text);
  }
  return options;
}

constexpr Field<Summary, int64_t> kSummaryCounts[] = {
    {"exchanges", &Summary::exchanges},
    {"steps", &Summary::steps},
    {"samples", &Summary::samples},
    {"parameters_dense", &Summary::parameters_dense},
    {"parameters_compact", &Summary::parameters_compact},
    {"macs_dense", &Summary::macs_dense},
    {"macs_compact", &Summary::macs_compact},
    {"inter_node_bytes", &Summary::inter_node_bytes},
    {"inter_node_bytes_bound", &Summary::inter_node_bytes_bound},
    {"inter_node_bytes_dense", &Summary::inter_node_bytes_dense},
    {"inter_node_bytes_ddp", &Summary::inter_node_bytes_ddp},
    {"inter_node_bytes_ddp_flat", &Summary::inter_node_bytes_ddp_flat}};

/// What a strategy sends, for records older than the key `sends`.
bool sent_gradients(const std::string& strategy) {
  return strategy == "ddp" || strategy == "prunetrain" || strategy == "top_k" || strategy == "powersgd";
}

double share_of(double value, const char* name) {
  if (value >= 0 && value <= 1) return value;
  throw std::invalid_argument(fmt::format("{}: got {}, wanted 0 to 1", name, value));
}

std::vector<NodeData> parse_nodes(const json& object) {
  if (!object.contains("partition")) return {};
  std::vector<NodeData> nodes;
  each(member(object, "partition"), "class_counts", [&](const json& classes) {
    nodes.emplace_back();
    each(classes, [&](const json& count) { nodes.back().class_counts.push_back(whole_number(count)); });
  });
  const auto accuracies = required<std::vector<double>>(object, "accuracy_by_node");
  if (accuracies.size() != nodes.size()) {
    throw std::invalid_argument(fmt::format("accuracy_by_node: got {} of {} nodes", accuracies.size(), nodes.size()));
  }
  for (size_t node = 0; node < nodes.size(); ++node) {
    nodes[node].accuracy = share_of(accuracies[node], "accuracy_by_node");
  }
  return nodes;
}

/// Old records say whether all steps did, older ones nothing.
double overlap_of(const json& object, const std::string& strategy, int64_t steps) {
  if (object.contains("overlapped_steps")) {
    const auto overlapped = static_cast<double>(whole(object, "overlapped_steps"));
    return steps > 0 ? std::min(overlapped / static_cast<double>(steps), 1.0) : 0;
  }
  const bool always = object.contains("overlaps_backward") ? required<bool>(object, "overlaps_backward")
                                                           : strategy == "ddp" || strategy == "prunetrain";
  return always ? 1 : 0;
}

std::vector<Bucket> parse_buckets(const json& object) {
  std::vector<Bucket> buckets;
  if (!object.contains("buckets")) return buckets;
  each(object, "buckets", [&](const json& bucket) {
    const int64_t bytes = required_whole(bucket, "bytes");
    if (bytes < 1) throw std::invalid_argument(fmt::format("bytes: got {}, wanted 1 to 2^53", bytes));
    buckets.push_back({static_cast<double>(bytes), share_of(required<double>(bucket, "ready"), "ready")});
  });
  return buckets;
}

bool is_base64(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '/' ||
           c == '=';
  });
}

int64_t parse_class(const json& object, const char* key, size_t classes) {
  const int64_t number = required_whole(object, key);
  if (number >= 0 && number < static_cast<int64_t>(classes)) return number;
  throw std::invalid_argument(fmt::format("{}: got {} of {} classes", key, number, classes));
}

Answers::Mistake parse_mistake(const json& mistake, size_t classes) {
  Answers::Mistake parsed{.label = parse_class(mistake, "label", classes),
                          .answer = parse_class(mistake, "answer", classes),
                          .confidence = required<double>(mistake, "confidence"),
                          .file = word(mistake, "file"),
                          .png = word(mistake, "png")};
  if (!is_base64(parsed.png)) throw std::invalid_argument("png: no base64");
  return parsed;
}

Answers parse_answers(const json& file) {
  Answers answers{.classes = required<std::vector<std::string>>(file, "classes"),
                  .top5_accuracy = maybe(file, "top5_accuracy")};
  const auto classes = static_cast<int64_t>(answers.classes.size());
  each(file, "counts", [&](const json& count) {
    const auto numbers = count.get<std::vector<int64_t>>();
    if (numbers.size() != 3) throw std::invalid_argument(fmt::format("got {} numbers, wanted 3", numbers.size()));
    answers.counts.push_back({numbers[0], numbers[1], numbers[2]});
    const auto& [label, answer, images] = answers.counts.back();
    if (std::min(label, answer) < 0 || std::max(label, answer) >= classes || images < 0) {
      throw std::invalid_argument(fmt::format("got [{}, {}, {}] of {} classes", label, answer, images, classes));
    }
  });
  if (!file.contains("mistakes")) return answers;
  each(file, "mistakes",
       [&](const json& mistake) { answers.mistakes.push_back(parse_mistake(mistake, answers.classes.size())); });
  return answers;
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
    run.problems.push_back(fmt::format("{}/{}: {}", run.directory, name, text::reason(error)));
  }
}

}  // namespace

Messages count_messages(const json& summary) {
  if (summary.contains("messages")) {
    return {whole(summary, "messages"), whole(summary, "flat_messages"), maybe_whole(summary, "direct_messages"),
            maybe_whole(summary, "flat_direct_messages"), maybe_whole(summary, "gathered_bytes")};
  }
  if (!summary.contains("traffic")) return {};
  const json traffic = part(summary, "traffic");
  return {sum_of(traffic, "count"), sum_of(traffic, "count", {}, {"flat"}), sum_of(traffic, "count", kDirect),
          sum_of(traffic, "count", kDirect, {"flat"}), sum_of(traffic, "sent_bytes", {"all_gather"})};
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

std::string Run::machine() const {
  if (!summary || summary->gpus.empty()) return processor;
  return fmt::format("{}{}", processor.empty() ? "" : processor + ", with ", fmt::join(summary->gpus, " and "));
}

namespace {

/// What `ranks-per-node` lists: one number for all nodes, or one of each.
std::vector<int64_t> ranks_per_node(const Run& run) {
  std::vector<int64_t> ranks;
  std::istringstream list(run.option("ranks-per-node"));
  for (std::string one; std::getline(list, one, ',');) ranks.push_back(count_from(one));
  return ranks.empty() ? std::vector<int64_t>{1} : ranks;
}

}  // namespace

int64_t Run::ranks() const {
  const auto ranks = ranks_per_node(*this);
  return ranks.size() == 1 ? nodes() * ranks[0] : std::accumulate(ranks.begin(), ranks.end(), int64_t{0});
}

bool Run::has_equal_nodes() const {
  const auto ranks = ranks_per_node(*this);
  return std::set(ranks.begin(), ranks.end()).size() == 1;
}

bool is_run_directory(const std::string& directory) {
  std::error_code unreadable;
  return fs::is_regular_file(directory + "/metrics.jsonl", unreadable) ||
         fs::is_regular_file(directory + "/summary.json", unreadable);
}

Summary parse_summary(const json& object) {
  Summary summary{.options = summary_options(object), .version = word(object, "version")};
  const std::string strategy = word(object, "strategy"), sends = word(object, "sends");
  summary.sends_gradients = sends.empty() ? sent_gradients(strategy) : sends == "gradients";
  for (const auto& [name, of] : kSummaryCounts) summary.*of = whole(object, name);
  summary.overlap = overlap_of(object, strategy, summary.steps);
  summary.buckets = parse_buckets(object);
  summary.accuracy = share_of(required<double>(object, "accuracy"), "accuracy");
  summary.nodes = parse_nodes(object);
  summary.messages = count_messages(object);
  summary.precision = word(object, "precision");
  if (object.contains("gpus")) summary.gpus = required<std::vector<std::string>>(object, "gpus");
  summary.seconds = numbers_of(part(object, "seconds"), kSeconds);
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

Run read_run(const std::string& directory) {
  Run run{.directory = directory};
  read_file(run, "config.toml", [&](std::istream& file) { run.options = parse_options(file); });
  read_file(
      run, "metrics.jsonl", [&](std::istream& file) { run.exchanges = parse_exchanges(file); }, kLargestMetrics);
  read_file(run, "summary.json", [&](std::istream& file) { run.summary = parse_summary(read_json(file)); });
  read_file(run, "structure.json", [&](std::istream& file) { run.groups = parse_groups(read_json(file)); });
  read_file(run, "answers.json", [&](std::istream& file) { run.answers = parse_answers(read_json(file)); });
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

}  // namespace prunex::report
