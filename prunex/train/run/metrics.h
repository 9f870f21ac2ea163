// What a run reports: one record per exchange and a summary. docs/use.md, "Run directory".
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "prunex/comm/layout.h"
#include "prunex/comm/traffic.h"
#include "prunex/data/description.h"
#include "prunex/strategies/strategy.h"
#include "prunex/train/product.h"

namespace prunex::train {

/// A record itself, or a const one.
template <class Given, class Record>
concept SameRecord = std::same_as<std::remove_cv_t<Given>, Record>;

/// Seconds one rank spent in an exchange, waiting included.
struct ExchangeSeconds {
  double intra = 0;    ///< sum over the node
  double project = 0;  ///< node update, scores, masks
  double inter = 0;    ///< packing, links between nodes, gathering in the node, unpacking
  double dual = 0;     ///< duals, residuals, penalties, restart of theta
};
ExchangeSeconds seconds_of(const std::vector<strategies::Phase>& phases);

/// Seconds of the phases of a run; means over ranks.
struct Seconds {
  double local = 0;
  ExchangeSeconds exchange;
  double evaluate = 0;
  double total = 0;

  Seconds& operator+=(const Seconds& other);
};

/// Name in files and value of every field, for sums, means, writing and reading.
void each_field(SameRecord<Seconds> auto& seconds, const auto& call) {
  call("local", seconds.local);
  call("intra", seconds.exchange.intra);
  call("project", seconds.exchange.project);
  call("inter", seconds.exchange.inter);
  call("dual", seconds.exchange.dual);
  call("evaluate", seconds.evaluate);
  call("total", seconds.total);
}

/// Bytes that node 0's ranks sent, as the communicators counted them.
struct Bytes {
  int64_t inter_node = 0;
  int64_t inter_node_bound = 0;  ///< 2(M-1)/M x payload: no all-reduce can do with less
  int64_t intra_node = 0;

  Bytes& operator+=(const Bytes& other);
};

void each_field(SameRecord<Bytes> auto& bytes, const auto& call) {
  call("inter_node_bytes", bytes.inter_node);
  call("inter_node_bytes_bound", bytes.inter_node_bound);
  call("intra_node_bytes", bytes.intra_node);
}

/// One line of metrics.jsonl.
struct Metrics {
  const char* phase = "train";
  int64_t step = 0;     ///< per rank, cumulative
  int64_t samples = 0;  ///< of all ranks, cumulative
  double epoch = 0;     ///< passes over the training set so far
  double loss = 0;      ///< mean training loss since the last exchange, all ranks
  double learning_rate = 0;
  std::optional<double> accuracy;  ///< of z on the test set, where evaluated
  std::optional<double> validation_accuracy;
  int64_t parameters = 0, macs = 0;  ///< of what is being trained
  strategies::Exchange exchange;
  std::vector<admm::Residuals> residuals_by_rank;  ///< Exchange::own of all ranks; empty without duals
  Seconds seconds;
  Bytes bytes;
  std::optional<uint64_t> z_hash;  ///< of z's parameters and the masks, equal on all ranks; of elastic runs
};

/// The network around cuts to a target: before the first, after the last. Accuracies are on the test set, with
/// re-estimated batch-norm statistics but for accuracy_after, which has those of before.
struct PrunedRecord {
  int64_t exchange = -1;  ///< of the last cut; 0: before the first step; -1: still to come
  int64_t parameters_before = 0, parameters_after = 0;
  int64_t macs_before = 0, macs_after = 0;
  double accuracy_before = 0, accuracy_after = 0, accuracy_after_statistics = 0;
  double milliseconds_before = 0, milliseconds_after = 0;  ///< of a batch of 128 images, on rank 0
};

/// The exchange with the best accuracy on the validation images, of those with the final structure.
struct BestRecord {
  int64_t exchange = 0;
  double validation_accuracy = 0;
  double accuracy = 0;  ///< on the test set
};

/// Of nodes with images of their own.
struct PartitionRecord {
  std::string rule;
  std::vector<std::vector<int64_t>> class_counts;  ///< training images by node and class
  std::vector<double> accuracy_by_node;            ///< of z on the test images, classes weighted as on the node
};

/// summary.json.
struct Summary {
  std::string strategy, model, dataset;
  bool sends_gradients = false;  ///< in every step; else weights in every exchange
  int64_t overlapped_steps = 0;  ///< local steps beside which messages between nodes travelled
  std::vector<strategies::Bucket>
      buckets;  ///< of this rank's gradients, before the last exchange; empty if not measured
  uint64_t seed = 0;
  std::string precision;  ///< of the local steps: fp32, tf32, bf16
  comm::Layout shape;     ///< of the run; its rank does not matter
  int64_t exchanges = 0, local_steps = 0, steps = 0, samples = 0;
  data::Description description;  ///< of the images
  int64_t classes = 0;
  bool frozen = false;
  bool converged = false;               ///< the residuals are below the tolerance: training is over
  double loss = 0, accuracy = 0;        ///< of z with re-estimated statistics, whole test set
  double accuracy_compact = 0;          ///< of the reloaded model.pt2
  std::optional<double> top5_accuracy;  ///< of it: labels among its five largest logits; of more than five classes
  std::optional<PartitionRecord> partition;
  std::optional<double> validation_accuracy;
  std::optional<BestRecord> best;
  std::optional<PrunedRecord> pruned;
  int64_t parameters_dense = 0, parameters_compact = 0;
  int64_t macs_dense = 0, macs_compact = 0;
  int64_t units_pruned = 0;   ///< units of the groups that the final masks leave out
  int64_t units_removed = 0;  ///< channels that are gone from the network
  std::vector<NotRemoved> not_removed;
  std::optional<int64_t> images_skipped;  ///< files that could not be read, of images that are streamed
  bool elastic = false;                   ///< the run goes on when nodes are lost
  int64_t nodes_lost = 0, nodes_joined = 0;
  bool has_deadline = false;  ///< slow nodes exchange the steps that they have made
  int64_t images_lost = 0;    ///< of lost nodes, from the exchange before to the next; that slow ones did not come to
  Bytes bytes;
  int64_t averaged_buffers = 0;                  ///< numbers in the batch-norm statistics that exchanges average
  std::map<std::string, comm::Traffic> traffic;  ///< of this rank, by group: node, rail; site and cross
  comm::NodeInterfaceBytes interface_bytes;      ///< of the interfaces that were named, as the kernel counted them
  int64_t graph_captures = 0;     ///< times that local steps were recorded as a CUDA graph, in this part of the run
  std::vector<std::string> gpus;  ///< what the GPUs of all ranks are called, each name once, in this part of the run
  double wall_seconds = 0;
  Seconds seconds;
  double samples_per_second_before_cut = 0;  ///< of the local steps, all ranks; 0 if there were none
  double samples_per_second_after_cut = 0;
};

/// One line of JSON, keys in the documented order.
std::string to_json(const Metrics& metrics);
/// Indented JSON, keys in the documented order. Adds the volumes that the same steps would have cost without pruning
/// and with per-step gradient averaging.
std::string to_json(const Summary& summary);

/// What a run has counted so far, for its checkpoint; and back.
std::string progress_json(const Summary& summary);
void restore_progress(Summary& summary, const std::string& json);

/// Bytes a node sends: the run's exchanges with dense fp32 weights; per-step hierarchical and flat-ring gradients.
int64_t dense_exchange_bytes(const Summary& summary);
int64_t ddp_bytes(const Summary& summary);
int64_t ddp_flat_bytes(const Summary& summary);

}  // namespace prunex::train
