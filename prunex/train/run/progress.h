// What a run tells the person who waits for it, on standard error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "prunex/train/options.h"
#include "prunex/train/run/metrics.h"

namespace prunex::train {

/// "1:05", "2:01:05".
std::string clock_time(double seconds);

/// Says when training begins, after every exchange, and where the results are. Plain: lines, or, on a terminal, one
/// that redraws itself within a row and stays where accuracy was measured. Nothing if quiet.
class Progress {
 public:
  /// Of a run of so many exchanges, of which `run` counts those that are behind it.
  Progress(Summary run, int64_t exchanges, LogForm form, bool quiet);

  void start(const std::string& directory);
  void report(const Metrics& metrics, double seconds_so_far, double samples_per_second);
  /// Ends the line that redraws itself.
  void finish();
  /// The product is written.
  void done();

 private:
  std::vector<std::string> fields_of(const Metrics& metrics, double seconds_left, double samples_per_second) const;
  std::string json_of(const Metrics& metrics, double seconds_left, double samples_per_second) const;
  std::string report_command() const { return "prunex report " + directory_; }
  std::string model_file() const { return directory_ + "/model.pt2"; }
  void say_line(const std::string& text);
  void print(const std::string& text) const;

  Summary run_;  // as it was at the start
  int64_t exchanges_;
  std::string directory_;
  int64_t dense_bytes_;  // per exchange
  LogForm form_;
  bool quiet_;
  bool redraws_;
  bool unfinished_ = false;  // a line that redraws itself is there
};

}  // namespace prunex::train
