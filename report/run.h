// What a run directory holds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace prunex::report {

/// Seconds of the phases, means over ranks.
struct Seconds {
  double local = 0, intra = 0, project = 0, inter = 0, dual = 0, evaluate = 0, total = 0;

  /// Of the exchange: everything but local steps and evaluation.
  double exchange() const { return intra + project + inter + dual; }
};

/// A number under its name in the files of runs.
template <class Owner, class Number = double>
struct Field {
  const char* name;
  Number Owner::*of;
};
inline constexpr Field<Seconds> kSeconds[] = {{"local", &Seconds::local},     {"intra", &Seconds::intra},
                                              {"project", &Seconds::project}, {"inter", &Seconds::inter},
                                              {"dual", &Seconds::dual},       {"evaluate", &Seconds::evaluate},
                                              {"total", &Seconds::total}};

/// Norms of the residuals; of all tensors, of one, or of one rank.
struct Residuals {
  double r_intra = 0, s_intra = 0, r_inter = 0, s_inter = 0;
};

inline constexpr Field<Residuals> kResiduals[] = {{"r_intra", &Residuals::r_intra},
                                                  {"s_intra", &Residuals::s_intra},
                                                  {"r_inter", &Residuals::r_inter},
                                                  {"s_inter", &Residuals::s_inter}};

/// One line of metrics.jsonl.
struct Exchange {
  int64_t index = 0, step = 0, samples = 0;
  double loss = 0;
  std::optional<double> learning_rate, accuracy;
  double keep = 1;
  int64_t mask_changes = 0;
  bool frozen = false;
  int64_t parameters = 0, macs = 0;
  Residuals residuals;
  std::map<std::string, Residuals> residuals_by_tensor;  ///< empty unless the run wrote them
  std::vector<Residuals> residuals_by_rank;              ///< likewise
  Seconds seconds;
  int64_t inter_node_bytes = 0, inter_node_bytes_bound = 0, intra_node_bytes = 0;
};

inline constexpr Field<Exchange, int64_t> kCounted[] = {{"exchange", &Exchange::index},
                                                        {"step", &Exchange::step},
                                                        {"samples", &Exchange::samples},
                                                        {"mask_changes", &Exchange::mask_changes},
                                                        {"parameters", &Exchange::parameters},
                                                        {"macs", &Exchange::macs},
                                                        {"inter_node_bytes", &Exchange::inter_node_bytes},
                                                        {"inter_node_bytes_bound", &Exchange::inter_node_bytes_bound},
                                                        {"intra_node_bytes", &Exchange::intra_node_bytes}};

/// Operations that rank 0 took part in; 0 where the run did not count them.
struct Messages {
  int64_t between_nodes = 0, among_all = 0;
  /// Of those between nodes: from everyone to everyone, instead of round a ring. Nothing where older records do not
  /// say.
  std::optional<int64_t> direct;
  std::optional<int64_t> flat_direct;     ///< of those among all; likewise
  std::optional<int64_t> gathered_bytes;  ///< sent by rank 0 so that all have what every rank has; likewise
};

/// Gradients that leave together while backward makes the rest.
struct Bucket {
  double bytes = 0;
  double ready = 1;  ///< the share of a step's computing at which they were whole
};

/// A node of a run whose nodes have images of their own.
struct NodeData {
  std::vector<int64_t> class_counts;  ///< training images
  double accuracy = 0;                ///< of the product on test images of these classes in these shares
};

/// summary.json.
struct Summary {
  /// What it ran with, by the options' names: strategy, model, dataset, seed, nodes, ranks-per-node, sites,
  /// local-steps.
  std::map<std::string, std::string> options;
  std::string version;           ///< of prunex
  bool sends_gradients = false;  ///< in every step; else weights in every exchange
  double overlap = 0;            ///< share of the local steps beside which messages between nodes travelled
  std::vector<Bucket> buckets;   ///< in the order in which they leave; empty where older records do not say
  int64_t exchanges = 0, steps = 0, samples = 0;
  double accuracy = 0;
  std::vector<NodeData> nodes;  ///< empty where all have all images
  int64_t parameters_dense = 0, parameters_compact = 0;
  int64_t macs_dense = 0, macs_compact = 0;  ///< of an image; dense: before cuts
  int64_t inter_node_bytes = 0, inter_node_bytes_bound = 0, inter_node_bytes_dense = 0;
  int64_t inter_node_bytes_ddp = 0, inter_node_bytes_ddp_flat = 0;
  std::vector<std::string> gpus;  ///< names; empty where it computed on processors
  std::string precision;          ///< of the local steps; empty where older records do not say
  Messages messages;
  Seconds seconds;
};

/// Units of a group that survived.
struct KeptUnits {
  std::string group;
  int64_t size = 0;
  std::vector<int64_t> kept;
};

/// answers.json: what the network that shipped answers to the test images.
struct Answers {
  /// Images of one class that were taken for one.
  struct Count {
    int64_t label = 0, answer = 0, images = 0;
  };
  /// A wrong answer with an image to look at.
  struct Mistake {
    int64_t label = 0, answer = 0;
    double confidence = 0;
    std::string file;
    std::string png;  ///< in base64
  };
  std::vector<std::string> classes;  ///< their names
  std::vector<Count> counts;
  std::vector<Mistake> mistakes;
  std::optional<double> top5_accuracy;  ///< absent where there are no more than five classes
};

/// One phase of one rank, from trace.json.
struct Span {
  std::string phase;
  int64_t node = 0, rank = 0, exchange = 0;
  double begin = 0, seconds = 0;
};

/// A key of a [[run]] in a comparison's file that takes an option's file from another run.
struct RunFile {
  const char* key;
  const char* option;
  const char* file;                             ///< in the directory of that run
  std::array<std::string_view, 4> beside = {};  ///< keys that it leaves nothing to say, the option's own aside
};
inline constexpr RunFile kRunFiles[] = {{"model-of", "model", "model.pt2", {"width", "norm", "widths", "widths-of"}},
                                        {"teacher-of", "teacher", "model.pt2"},
                                        {"widths-of", "widths", "structure.json", {"weights"}}};

struct Run {
  std::string directory;
  std::string name;               ///< given by a comparison; else empty
  std::string processor, commit;  ///< likewise
  std::string prunex, libtorch;   ///< versions, likewise
  std::string sitting;            ///< when `timed` was measured, with all that was timed then
  std::string timed_on;           ///< the processor of `timed`
  /// config.toml, completed from what a comparison's file says; the network is the one with which the first of runs
  /// began that took over each other's.
  std::map<std::string, std::string> options;
  /// What a comparison's file says of the run, for telling its runs apart; empty outside of comparisons.
  std::map<std::string, std::string> declared;
  bool has_unknown_preset = false;  ///< a preset set options that nothing names
  std::vector<Exchange> exchanges;
  std::vector<Exchange> timed;     ///< of a short run of the same options with the machine to itself; mostly empty
  std::optional<Summary> summary;  ///< absent while the run is not finished, and where its accuracy cannot be read
  std::vector<KeptUnits> groups;
  std::vector<Span> trace;
  std::optional<Answers> answers;
  std::vector<std::string> problems;  ///< files that are there and could not be read, one line each

  /// Of config.toml, else of summary.json; empty if neither knows.
  std::string option(const std::string& key) const;
  /// One node, and one rank on each, where nothing is said.
  int64_t nodes() const;
  int64_t ranks() const;
  /// Whether all have as many ranks.
  bool has_equal_nodes() const;
  /// "AMD EPYC, AVX2, with NVIDIA H100 80GB HBM3"; empty if nothing says where it computed.
  std::string machine() const;
};

/// Of summary.json: counted from its traffic, or as an entry of compare.json has them.
Messages count_messages(const nlohmann::json& summary);

bool is_run_directory(const std::string& directory);
/// Reads what there is. What is missing stays empty; what is broken is named in `problems`.
Run read_run(const std::string& directory);
/// What summary.json, and the groups of structure.json, say. Throw std::invalid_argument for what is something else.
Summary parse_summary(const nlohmann::json& object);
std::vector<KeptUnits> parse_groups(const nlohmann::json& structure);
/// Whether this is the summary.json of a finished run: it has an accuracy, and what else it has is of the right type.
bool is_summary(const nlohmann::json& object);

/// More are not read, from any file.
inline constexpr size_t kMostExchanges = 1'000'000;

}  // namespace prunex::report
