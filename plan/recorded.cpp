#include "plan/recorded.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>

#include "report/usual_seconds.h"

namespace prunex::plan {
namespace {

using report::Run;

double numeric(const Run& run, const std::string& option, double otherwise) {
  const auto text = run.option(option);
  return text.empty() || text == "auto" ? otherwise : std::strtod(text.c_str(), nullptr);
}

bool is_on(const Run& run, const std::string& option) {
  return numeric(run, option, 0) != 0;
}

std::string word_or(const std::string& word, const std::string& otherwise) {
  return word.empty() || word == "auto" ? otherwise : word;
}

comm::Form form_of(const Run& run, const std::string& payload) {
  const auto form = run.option("exchange");
  if (run.option("strategy") == "hsadmm_flat") return comm::Form::kDirect;
  if (form == "flat") return comm::Form::kFlat;
  if (payload != "fp32") return comm::Form::kDirect;
  return form == "leader" ? comm::Form::kLeader : comm::Form::kSharded;
}

void refuse(bool condition, const std::string& why) {
  if (condition) throw std::invalid_argument(why);
}

void check_usable(const report::Variant& variant) {
  const auto runs = variant.finished();
  refuse(runs.empty(), "no run of it is finished");
  const Run& run = *runs.front();
  refuse(variant.is_later_stage(),
         "it begins with another run's network, whose time and bytes are in that run's record");
  refuse(run.nodes() < 2 || run.summary->inter_node_bytes == 0,
         "it ran on one node, which sends nothing: wanted a run of two nodes, which may be one machine (--nodes 2)");
  refuse(run.has_unknown_preset, "its record does not say what its preset set: wanted its directory, or a new run");
  refuse(!run.has_equal_nodes(), "its nodes had different numbers of ranks");
  refuse(run.summary->steps == 0 || run.summary->exchanges == 0 || run.summary->samples == 0,
         "its summary has no steps, exchanges or images");
  refuse(run.option("strategy") == "top_k" && !run.summary->messages.gathered_bytes,
         "its record does not say which bytes were gathered, which grow with the ranks (run it again)");
}

/// Per exchange, or per step where gradients are sent.
Operations operations_of(const Recorded& recorded, const report::Summary& summary) {
  const auto sends = static_cast<double>(recorded.sends_gradients ? summary.steps : summary.exchanges);
  const auto& counted = summary.messages;
  const auto all = static_cast<double>(counted.between_nodes + counted.among_all) / sends;
  if (all == 0) {
    return recorded.form == comm::Form::kDirect ? Operations{.direct = 1} : Operations{.rings = 1};
  }
  if (recorded.strategy == "top_k") return {.rings = all / 2, .gathers = all / 2};
  if (recorded.form != comm::Form::kDirect) return {.rings = all};
  const double direct = counted.direct ? static_cast<double>(*counted.direct + counted.among_all) / sends : 2;
  return {.rings = std::max(0.0, all - direct), .direct = direct / 2};
}

/// What of a node's bytes was gathered.
double gathered_share(const Run& run) {
  if (run.option("strategy") != "top_k") return 0;
  const auto of_rank = static_cast<double>(*run.summary->messages.gathered_bytes);
  const auto of_node = of_rank * static_cast<double>(run.ranks()) / static_cast<double>(run.nodes());
  return std::min(1.0, of_node / static_cast<double>(run.summary->inter_node_bytes));
}

/// From bytes that a node sent back to the bytes that were summed up or gathered.
class Payloads {
 public:
  Payloads(const Recorded& recorded, const Run& run) : share_(gathered_share(run)) {
    const comm::ClusterShape shape{recorded.nodes, recorded.ranks / recorded.nodes,
                                   static_cast<int>(numeric(run, "sites", 1))};
    per_reduced_ = comm::node_bytes(recorded.form, 1, shape) * (recorded.knows_no_nodes ? shape.ranks_per_node : 1);
    per_gathered_ = comm::gathered_node_bytes(1, shape);
  }

  void set(Stretch& stretch, double node_bytes, double sends) const {
    stretch.reduced = (1 - share_) * node_bytes / sends / per_reduced_;
    stretch.gathered = share_ * node_bytes / sends / per_gathered_;
  }

 private:
  double share_, per_reduced_, per_gathered_;
};

/// Of a run of which only the summary is left: as many equal stretches as it had exchanges.
std::vector<Stretch> equal_stretches(const Run& run, const Recorded& recorded) {
  const auto& summary = *run.summary;
  if (static_cast<size_t>(summary.exchanges) > report::kMostExchanges) {
    throw std::invalid_argument(fmt::format("plan: {}: summary.json: got {} exchanges, wanted at most {}",
                                            run.directory, summary.exchanges, report::kMostExchanges));
  }
  const auto exchanges = static_cast<double>(summary.exchanges), steps = static_cast<double>(summary.steps);
  const report::UsualSeconds usual = usual_seconds(run);
  Stretch stretch{.images = static_cast<double>(summary.samples) / exchanges,
                  .step_seconds = usual.local / steps,
                  .work_seconds = usual.work / exchanges,
                  .inter_seconds = usual.inter / exchanges};
  if (summary.macs_dense == summary.macs_compact) stretch.macs = static_cast<double>(summary.macs_dense);
  Payloads(recorded, run)
      .set(stretch, static_cast<double>(summary.inter_node_bytes), recorded.sends_gradients ? steps : exchanges);
  return std::vector<Stretch>(static_cast<size_t>(summary.exchanges), stretch);
}

std::vector<Stretch> stretches_of(const Run& run, const Recorded& recorded) {
  const auto usual = usual_seconds_by_exchange(run);
  if (usual.empty()) return equal_stretches(run, recorded);
  const Payloads payloads(recorded, run);
  std::vector<Stretch> stretches;
  int64_t images = 0, steps = 0;
  for (size_t i = 0; i < usual.size(); ++i) {
    const auto& exchange = run.exchanges[i];
    const auto seen = static_cast<double>(exchange.samples - images),
               taken = static_cast<double>(exchange.step - steps);
    images = exchange.samples;
    steps = exchange.step;
    if (seen <= 0 || taken <= 0) continue;
    stretches.push_back({.images = seen,
                         .step_seconds = usual[i].local / taken,
                         .work_seconds = usual[i].work,
                         .inter_seconds = usual[i].inter,
                         .macs = static_cast<double>(exchange.macs)});
    payloads.set(stretches.back(), static_cast<double>(exchange.inter_node_bytes),
                 recorded.sends_gradients ? taken : 1);
  }
  return stretches.empty() ? equal_stretches(run, recorded) : stretches;
}

constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();  // the exchange of a seed's last sample

std::vector<report::Sample> accuracies_of(const Run& run) {
  std::vector<report::Sample> samples;
  for (const auto& exchange : run.exchanges) {
    if (exchange.accuracy)
      samples.push_back({exchange.index, static_cast<double>(exchange.samples), *exchange.accuracy});
  }
  const auto images = static_cast<double>(run.summary->samples);
  if (!samples.empty() && samples.back().x >= images) samples.pop_back();
  samples.push_back({kEnd, images, run.summary->accuracy});
  return samples;
}

/// Bytes of a dense message.
std::optional<double> dense_bytes(const Recorded& recorded, const std::string& payload) {
  // batch norm's weights and biases, which are as many as its statistics: numbers with one dimension travel in fp16
  const double vectors = recorded.statistics, weights = recorded.numbers - vectors;
  static const std::map<std::string, double> kBits{{"int8", 8}, {"int4", 4}, {"int2", 2}, {"int1", 1}};
  if (payload == "fp32") return 4 * (recorded.numbers + (recorded.sends_gradients ? 0 : recorded.statistics));
  if (payload == "bf16" || payload == "fp16") return 2 * recorded.numbers;
  const auto bits = kBits.find(payload);
  if (bits == kBits.end()) return std::nullopt;
  return weights * (bits->second / 8 + 2.0 / 128) + 2 * vectors;
}

bool has_payload(const Recorded& recorded, const std::string& payload) {
  if (payload == "fp32") return true;
  const bool half = payload == "bf16" || payload == "fp16";
  if (recorded.strategy == "ddp" || recorded.strategy == "prunetrain")
    return half && recorded.form != comm::Form::kFlat;
  if (recorded.strategy == "scaffold") return half;
  return !recorded.sends_gradients && recorded.strategy != "hsadmm_flat" && recorded.form != comm::Form::kFlat;
}

/// Means over the seeds.
struct Evaluation {
  double images = 0, accuracy = 0;
};

/// After every exchange that all seeds know, and at their ends. Nodes that were lost or late have given some of them
/// fewer images.
std::vector<Evaluation> evaluations_of(const Recorded& recorded) {
  std::map<int64_t, std::vector<report::Sample>> by_exchange;
  for (const auto& seed : recorded.seeds) {
    for (const auto& sample : seed.accuracies) by_exchange[sample.exchange].push_back(sample);
  }
  std::vector<Evaluation> all;
  for (const auto& [exchange, samples] : by_exchange) {
    if (samples.size() < recorded.seeds.size()) continue;
    std::vector<double> images, accuracies;
    for (const auto& sample : samples) {
      images.push_back(sample.x);
      accuracies.push_back(sample.y);
    }
    all.push_back({report::spread_of(images).mean, report::spread_of(accuracies).mean});
  }
  return all;
}

void read_setting(Recorded& recorded, const Run& run) {
  const auto& summary = *run.summary;
  recorded.strategy = run.option("strategy");
  recorded.model = run.option("model");
  recorded.precision = run.option("precision");
  recorded.payload = word_or(run.option("payload"), "fp32");
  recorded.nodes = static_cast<int>(run.nodes());
  recorded.ranks = static_cast<int>(run.ranks());
  recorded.batch = static_cast<double>(summary.samples) / static_cast<double>(summary.steps * run.ranks());
  recorded.local_steps = numeric(
      run, "local-steps", std::ceil(static_cast<double>(summary.steps) / static_cast<double>(summary.exchanges)));
  recorded.images = static_cast<double>(summary.samples);
  double epochs = 0;
  for (const char* phase : {"epochs", "sparse-epochs", "finetune-epochs"}) epochs += numeric(run, phase, 0);
  const bool says_all = !run.option("epochs").empty();  // a record without the run's directory has no defaults
  if (says_all && epochs > 0 && numeric(run, "exchanges", 0) == 0) recorded.images_per_epoch = recorded.images / epochs;
  recorded.sends_gradients = summary.sends_gradients;
  recorded.overlap = summary.overlap;
  recorded.form = form_of(run, recorded.payload);
  recorded.knows_no_nodes = recorded.strategy == "hsadmm_flat";
  recorded.averages_in_node = run.option("in-node") == "gradients";
  recorded.changes_what_it_sends = is_on(run, "local-after");
  recorded.numbers = static_cast<double>(summary.parameters_dense);
  recorded.macs = static_cast<double>(summary.macs_dense);
  const double per_number = 4 * comm::node_bytes(comm::Form::kSharded, 1, {recorded.nodes, 1});
  recorded.statistics = std::max(
      0.0, static_cast<double>(summary.inter_node_bytes_dense) / static_cast<double>(summary.exchanges) / per_number -
               recorded.numbers);
}

/// As measured; else as if gradients appeared evenly in backward, which is two thirds of a step, because it has two
/// products of matrices for every one of forward: in the strategy's buckets of 1, 25, 25, … MiB.
std::vector<report::Bucket> buckets_of(const Recorded& recorded, const report::Summary& summary) {
  constexpr double kForward = 1.0 / 3, kMiB = 1 << 20;
  if (!recorded.sends_gradients || recorded.overlap == 0) return {};
  std::vector<report::Bucket> buckets = summary.buckets;
  if (!buckets.empty()) {
    double all = 0;
    for (const auto& bucket : buckets) all += bucket.bytes;
    for (auto& bucket : buckets) bucket.bytes /= all;
    return buckets;
  }
  const double bytes = 4 * recorded.numbers;
  for (double sent = 0; sent < bytes;) {
    const double size = std::min(bytes - sent, (buckets.empty() ? 1 : 25) * kMiB);
    sent += size;
    buckets.push_back({size / bytes, kForward + (1 - kForward) * sent / bytes});
  }
  if (buckets.empty()) buckets.push_back({1, 1});
  return buckets;
}

}  // namespace

Recorded take_apart(const report::Variant& variant) {
  check_usable(variant);
  const auto runs = variant.finished();
  Recorded recorded{.name = variant.name};
  read_setting(recorded, *runs.front());
  recorded.operations = operations_of(recorded, *runs.front()->summary);
  recorded.buckets = buckets_of(recorded, *runs.front()->summary);
  std::vector<double> accuracies;
  for (const Run* run : runs) {
    recorded.seeds.push_back({stretches_of(*run, recorded), accuracies_of(*run), timing_scatter(*run)});
    accuracies.push_back(run->summary->accuracy);
    for (const auto& stretch : recorded.seeds.back().stretches) recorded.macs = std::max(recorded.macs, stretch.macs);
  }
  recorded.accuracy = report::spread_of(accuracies);
  return recorded;
}

std::optional<double> payload_ratio(const Recorded& recorded, const std::string& payload) {
  if (payload == recorded.payload) return 1;
  if (!has_payload(recorded, payload) || recorded.numbers == 0) return std::nullopt;
  const auto ours = dense_bytes(recorded, payload), theirs = dense_bytes(recorded, recorded.payload);
  if (!ours || !theirs) return std::nullopt;
  return *ours / *theirs;
}

std::optional<bool> begins_dense(const Recorded& recorded, const RecordedSeed& seed) {
  const double macs = seed.stretches.front().macs;
  return macs > 0 ? std::optional(macs == recorded.macs) : std::nullopt;
}

double dense_step_seconds(const Recorded& recorded, const RecordedSeed& seed) {
  const Stretch& first = seed.stretches.front();
  return first.macs > 0 ? first.step_seconds * recorded.macs / first.macs : first.step_seconds;
}

std::optional<double> images_to(const Recorded& recorded, double target) {
  for (const auto& [images, accuracy] : evaluations_of(recorded)) {
    if (accuracy >= target) return images;
  }
  return std::nullopt;
}

double best_accuracy(const Recorded& recorded) {
  double best = 0;
  for (const auto& evaluation : evaluations_of(recorded)) best = std::max(best, evaluation.accuracy);
  return best;
}

}  // namespace prunex::plan
