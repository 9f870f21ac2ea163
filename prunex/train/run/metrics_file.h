// What a run says of its exchanges: lines of metrics.jsonl, and scalars for TensorBoard; and of its nodes, where they
// come and go: lines of membership.jsonl.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "prunex/comm/elastic/elastic.h"
#include "prunex/io/files.h"
#include "prunex/train/run/metrics.h"

namespace prunex::train {

/// In the run directory; by "tfevents" TensorBoard knows it.
inline constexpr const char* kEventFile = "events.out.tfevents.prunex";

/// Writes. That it cannot ends no run: it is said, unless it has been.
void attempt(const std::function<void()>& write, bool& said);

/// A disk that is full may have room again before the end: till then lines wait, which is said once, and the run goes
/// on.
class MetricsFile {
 public:
  /// Appends to the files that are there.
  MetricsFile(const std::string& directory, bool tensorboard);

  void append(const Metrics& metrics);
  void append(const comm::Change& change, int64_t exchange);
  /// Why lines are missing in the file; empty if none is.
  std::string problem();

 private:
  void append_changes();

  const std::string directory_;
  io::GrowingFile lines_;
  std::optional<io::GrowingFile> events_, changes_;
  std::string unopened_;  // changes, as long as their file cannot be opened
  bool said_ = false;
};

/// Leaves the lines of the exchanges 1 … `last` and the scalars of the steps up to `step`, for a run that goes on
/// there. That some lines are missing or damaged is said, and ends no run: the checkpoint has what it goes on from.
void keep_exchanges(const std::string& directory, int64_t last, int64_t step);
/// The same of membership.jsonl: leaves the changes by which so many nodes had been lost and had joined.
void keep_changes(const std::string& directory, int64_t lost, int64_t joined);

}  // namespace prunex::train
