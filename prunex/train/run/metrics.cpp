#include "prunex/train/run/metrics.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <map>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "prunex/text/json.h"
#include "prunex/version.h"

namespace prunex::train {
namespace {

using nlohmann::ordered_json;

ordered_json residuals_json(const admm::Residuals& residuals) {
  return {{"r_intra", residuals.r_intra},
          {"s_intra", residuals.s_intra},
          {"r_inter", residuals.r_inter},
          {"s_inter", residuals.s_inter}};
}

/// Of all tensors together, by tensor and by rank.
ordered_json residuals_json(const Metrics& metrics) {
  std::vector<admm::Residuals> tensors;
  for (const auto& [name, residuals] : metrics.exchange.residuals) tensors.push_back(residuals);
  ordered_json json = residuals_json(admm::combined(tensors));
  for (const auto& [name, residuals] : metrics.exchange.residuals) json["by_tensor"][name] = residuals_json(residuals);
  for (const auto& residuals : metrics.residuals_by_rank) json["by_rank"].push_back(residuals_json(residuals));
  return json;
}

ordered_json rate_json(double rate) {
  return rate > 0 ? ordered_json(rate) : ordered_json();
}

ordered_json ranks_json(const comm::Layout& shape) {
  return shape.is_even() ? ordered_json(shape.node_sizes[0]) : ordered_json(shape.node_sizes);
}

/// Rates in bytes per second: of the tensors handed in, and of what went over the links.
ordered_json traffic_json(const comm::OperationTraffic& counts) {
  double seconds = 0;
  for (const float took : counts.seconds) seconds += took;
  const double share =
      counts.count == 0 ? 0 : static_cast<double>(counts.seconds.size()) / static_cast<double>(counts.count);
  const auto rate = [&](int64_t bytes) { return seconds > 0 ? static_cast<double>(bytes) * share / seconds : 0; };
  return {{"count", counts.count},
          {"payload_bytes", counts.payload_bytes},
          {"sent_bytes", counts.sent_bytes},
          {"algbw", rate(counts.payload_bytes)},
          {"busbw", rate(counts.sent_bytes)},
          {"p50", counts.quantile(0.5)},
          {"p99", counts.quantile(0.99)}};
}

// Of records, as metrics.h has it of seconds and bytes.

void each_field(SameRecord<PrunedRecord> auto& record, const auto& call) {
  call("exchange", record.exchange);
  call("parameters_before", record.parameters_before);
  call("parameters_after", record.parameters_after);
  call("macs_before", record.macs_before);
  call("macs_after", record.macs_after);
  call("accuracy_before", record.accuracy_before);
  call("accuracy_after", record.accuracy_after);
  call("accuracy_after_statistics", record.accuracy_after_statistics);
  call("milliseconds_before", record.milliseconds_before);
  call("milliseconds_after", record.milliseconds_after);
}

void each_field(SameRecord<BestRecord> auto& record, const auto& call) {
  call("exchange", record.exchange);
  call("validation_accuracy", record.validation_accuracy);
  call("accuracy", record.accuracy);
}

void add_fields(ordered_json& json, const auto& record) {
  each_field(record, [&](const char* name, const auto& value) { json[name] = value; });
}

void read_fields(const nlohmann::json& json, auto& record) {
  each_field(record, [&](const char* name, auto& value) { json.at(name).get_to(value); });
}

/// Of a record whose fields are all of one type.
template <class Number>
void sum_fields(auto& sums, const auto& more) {
  std::vector<Number> numbers;
  each_field(more, [&](const char*, Number number) { numbers.push_back(number); });
  auto next = numbers.begin();
  each_field(sums, [&](const char*, Number& sum) { sum += *next++; });
}

void add_record(ordered_json& json, const char* key, const auto& record) {
  if (record) add_fields(json[key], *record);
}

void read_record(const nlohmann::json& json, const char* key, auto& record) {
  if (json.contains(key)) read_fields(json[key], record.emplace());
}

/// What progress keeps of a group's traffic: what a summary shows.
ordered_json counts_json(const comm::Traffic& traffic) {
  ordered_json json = ordered_json::object();
  for (const auto& [operation, counts] : traffic.by_operation) {
    json[operation] = {{"count", counts.count},
                       {"payload_bytes", counts.payload_bytes},
                       {"sent_bytes", counts.sent_bytes},
                       {"seconds", counts.seconds}};
  }
  return json;
}

comm::Traffic read_counts(const nlohmann::json& json) {
  comm::Traffic traffic;
  for (const auto& [operation, counts] : json.items()) {
    traffic.by_operation[operation] = {.count = counts.at("count"),
                                       .payload_bytes = counts.at("payload_bytes"),
                                       .sent_bytes = counts.at("sent_bytes"),
                                       .seconds = counts.at("seconds").get<std::vector<float>>()};
  }
  return traffic;
}

ordered_json interfaces_json(const comm::NodeInterfaceBytes& interfaces) {
  ordered_json json = ordered_json::object();
  for (const auto& [name, nodes] : interfaces) {
    for (const auto& bytes : nodes) json[name].push_back({{"sent", bytes.sent}, {"received", bytes.received}});
  }
  return json;
}

comm::NodeInterfaceBytes read_interfaces(const nlohmann::json& json) {
  comm::NodeInterfaceBytes interfaces;
  for (const auto& [name, nodes] : json.items()) {
    for (const auto& bytes : nodes) interfaces[name].push_back({bytes.at("sent"), bytes.at("received")});
  }
  return interfaces;
}

/// What a ring all-reduce of `numbers` fp32 numbers among n members sends per member.
int64_t ring_bytes(int64_t numbers, int64_t n) {
  return 2 * (n - 1) * 4 * numbers / n;
}

// What progress keeps of a summary, each in its form.

ordered_json counted_json(const auto& number) {
  return number;
}

ordered_json counted_json(const Seconds& seconds) {
  ordered_json json;
  add_fields(json, seconds);
  return json;
}

ordered_json counted_json(const comm::NodeInterfaceBytes& interfaces) {
  return interfaces_json(interfaces);
}

ordered_json counted_json(const std::map<std::string, comm::Traffic>& groups) {
  ordered_json json = ordered_json::object();
  for (const auto& [group, traffic] : groups) json[group] = counts_json(traffic);
  return json;
}

void read_counted(const nlohmann::json& json, auto& number) {
  json.get_to(number);
}

void read_counted(const nlohmann::json& json, Seconds& seconds) {
  read_fields(json, seconds);
}

void read_counted(const nlohmann::json& json, comm::NodeInterfaceBytes& interfaces) {
  interfaces = read_interfaces(json);
}

void read_counted(const nlohmann::json& json, std::map<std::string, comm::Traffic>& groups) {
  for (const auto& [group, counts] : json.items()) groups[group] = read_counts(counts);
}

enum class Age { kAlways, kNewer };  // kNewer: older checkpoints lack it

/// Name and value of everything but the records; and the age of what is newer.
void each_counted(SameRecord<Summary> auto& summary, const auto& call) {
  call("exchanges", summary.exchanges);
  call("steps", summary.steps);
  call("samples", summary.samples);
  call("overlapped_steps", summary.overlapped_steps);
  call("nodes_lost", summary.nodes_lost, Age::kNewer);
  call("nodes_joined", summary.nodes_joined, Age::kNewer);
  call("images_lost", summary.images_lost, Age::kNewer);
  call("frozen", summary.frozen);
  call("converged", summary.converged, Age::kNewer);
  call("inter_node", summary.bytes.inter_node);
  call("inter_node_bound", summary.bytes.inter_node_bound);
  call("intra_node", summary.bytes.intra_node);
  call("rate_before_cut", summary.samples_per_second_before_cut);
  call("seconds", summary.seconds);
  call("wall_seconds", summary.wall_seconds);
  call("interface_bytes", summary.interface_bytes);
  call("traffic", summary.traffic);
}

/// Of the last gradients, where they were measured.
void add_buckets(ordered_json& json, const std::vector<strategies::Bucket>& buckets) {
  for (const auto& [bytes, ready] : buckets) json["buckets"].push_back({{"bytes", bytes}, {"ready", ready}});
}

/// What the run went on without.
void add_losses(ordered_json& json, const Summary& summary) {
  if (summary.images_skipped) json["images_skipped"] = *summary.images_skipped;
  if (summary.elastic) {
    json["nodes_lost"] = summary.nodes_lost;
    json["nodes_joined"] = summary.nodes_joined;
  }
  if (summary.elastic || summary.has_deadline) json["images_lost"] = summary.images_lost;
}

}  // namespace

ExchangeSeconds seconds_of(const std::vector<strategies::Phase>& phases) {
  ExchangeSeconds seconds;
  const std::map<std::string_view, double*> homes{
      {"intra", &seconds.intra}, {"project", &seconds.project}, {"mask", &seconds.project}, {"pack", &seconds.inter},
      {"inter", &seconds.inter}, {"unpack", &seconds.inter},    {"dual", &seconds.dual}};
  for (const auto& phase : phases) *homes.at(phase.name) += phase.seconds;
  return seconds;
}

Seconds& Seconds::operator+=(const Seconds& other) {
  sum_fields<double>(*this, other);
  return *this;
}

Bytes& Bytes::operator+=(const Bytes& other) {
  sum_fields<int64_t>(*this, other);
  return *this;
}

int64_t dense_exchange_bytes(const Summary& summary) {
  return summary.exchanges * ring_bytes(summary.parameters_dense + summary.averaged_buffers, summary.shape.nodes());
}

int64_t ddp_bytes(const Summary& summary) {
  return summary.steps * ring_bytes(summary.parameters_dense, summary.shape.nodes());
}

int64_t ddp_flat_bytes(const Summary& summary) {
  if (summary.shape.nodes() == 1) return 0;
  return summary.steps * ring_bytes(summary.parameters_dense, summary.shape.world_size());
}

std::string progress_json(const Summary& summary) {
  ordered_json json;
  each_counted(summary,
               [&](const char* name, const auto& value, Age = Age::kAlways) { json[name] = counted_json(value); });
  json["precision"] = summary.precision;
  add_buckets(json, summary.buckets);
  add_record(json, "best", summary.best);
  add_record(json, "pruned", summary.pruned);
  return json.dump();
}

void restore_progress(Summary& summary, const std::string& text) try {
  const auto json = text::parse_json(text);
  each_counted(summary, [&](const char* name, auto& value, Age age = Age::kAlways) {
    if (age == Age::kAlways || json.contains(name)) {
      read_counted(json.at(name), value);
    } else {
      value = {};
    }
  });
  summary.precision = json.value("precision", summary.precision);
  summary.buckets.clear();
  for (const auto& bucket : json.value("buckets", ordered_json::array())) {
    summary.buckets.push_back({bucket.at("bytes"), bucket.at("ready")});
  }
  read_record(json, "best", summary.best);
  read_record(json, "pruned", summary.pruned);
} catch (const std::exception& error) {
  throw std::invalid_argument(fmt::format("no progress of a run: {}", text::reason(error)));
}

std::string to_json(const Metrics& metrics) {
  ordered_json json{{"exchange", metrics.exchange.index},
                    {"phase", metrics.phase},
                    {"epoch", metrics.epoch},
                    {"step", metrics.step},
                    {"samples", metrics.samples},
                    {"loss", metrics.loss},
                    {"lr", metrics.learning_rate}};
  if (metrics.accuracy) json["accuracy"] = *metrics.accuracy;
  if (metrics.validation_accuracy) json["validation_accuracy"] = *metrics.validation_accuracy;
  json["keep"] = metrics.exchange.keep;
  json["mask_changes"] = metrics.exchange.mask_changes;
  json["frozen"] = metrics.exchange.frozen;
  json["parameters"] = metrics.parameters;
  json["macs"] = metrics.macs;
  json["residuals"] = residuals_json(metrics);
  json["rho1"] = metrics.exchange.rho1;
  json["rho2"] = metrics.exchange.rho2;
  add_fields(json["seconds"], metrics.seconds);
  add_fields(json, metrics.bytes);
  if (metrics.z_hash) json["z_hash"] = fmt::format("{:016x}", *metrics.z_hash);
  return json.dump();
}

std::string to_json(const Summary& summary) {
  ordered_json json{{"version", kVersion},
                    {"strategy", summary.strategy},
                    {"sends", summary.sends_gradients ? "gradients" : "weights"},
                    {"overlapped_steps", summary.overlapped_steps},
                    {"model", summary.model},
                    {"dataset", summary.dataset},
                    {"seed", summary.seed},
                    {"precision", summary.precision},
                    {"nodes", summary.shape.nodes()},
                    {"ranks_per_node", ranks_json(summary.shape)},
                    {"sites", summary.shape.sites},
                    {"exchanges", summary.exchanges},
                    {"local_steps", summary.local_steps},
                    {"steps", summary.steps},
                    {"samples", summary.samples},
                    {"frozen", summary.frozen},
                    {"converged", summary.converged},
                    {"loss", summary.loss},
                    {"accuracy", summary.accuracy},
                    {"accuracy_compact", summary.accuracy_compact}};
  if (summary.top5_accuracy) json["top5_accuracy"] = *summary.top5_accuracy;
  add_buckets(json, summary.buckets);
  if (summary.partition) {
    json["accuracy_by_node"] = summary.partition->accuracy_by_node;
    json["partition"] = {{"rule", summary.partition->rule}, {"class_counts", summary.partition->class_counts}};
  }
  if (summary.validation_accuracy) json["validation_accuracy"] = *summary.validation_accuracy;
  add_record(json, "best", summary.best);
  add_record(json, "pruned", summary.pruned);
  json["normalization"] = {{"mean", summary.description.mean}, {"std", summary.description.std}};
  json["classes"] = data::names_or_numbers(summary.description.classes, summary.classes);
  json["parameters_dense"] = summary.parameters_dense;
  json["parameters_compact"] = summary.parameters_compact;
  json["macs_dense"] = summary.macs_dense;
  json["macs_compact"] = summary.macs_compact;
  json["units_pruned"] = summary.units_pruned;
  json["units_removed"] = summary.units_removed;
  json["not_removed"] = ordered_json::array();
  for (const auto& [group, units, reason] : summary.not_removed) {
    json["not_removed"].push_back({{"group", group}, {"units", units}, {"reason", reason}});
  }
  add_fields(json, summary.bytes);
  json["inter_node_bytes_dense"] = dense_exchange_bytes(summary);
  json["inter_node_bytes_ddp"] = ddp_bytes(summary);
  json["inter_node_bytes_ddp_flat"] = ddp_flat_bytes(summary);
  if (!summary.interface_bytes.empty()) json["interface_bytes"] = interfaces_json(summary.interface_bytes);
  if (summary.graph_captures > 0) json["graph_captures"] = summary.graph_captures;
  if (!summary.gpus.empty()) json["gpus"] = summary.gpus;
  add_losses(json, summary);
  json["wall_seconds"] = summary.wall_seconds;
  add_fields(json["seconds"], summary.seconds);
  json["samples_per_second"] = {{"before_cut", rate_json(summary.samples_per_second_before_cut)},
                                {"after_cut", rate_json(summary.samples_per_second_after_cut)}};
  for (const auto& [group, traffic] : summary.traffic) {
    for (const auto& [operation, counts] : traffic.by_operation)
      json["traffic"][group][operation] = traffic_json(counts);
  }
  return text::json_text(json, 2) + "\n";
}

}  // namespace prunex::train
