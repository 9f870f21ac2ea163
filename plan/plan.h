// From recorded runs and a cluster to a table, and what to take.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plan/prediction.h"
#include "report/plot.h"
#include "report/report.h"
#include "report/run.h"

namespace prunex::plan {

struct PlanOptions {
  Cluster cluster;
  std::string only;                        ///< names of runs that fit; empty: all
  std::vector<double> local_steps;         ///< further intervals, of what exchanges weights
  std::vector<std::string> payloads;       ///< further payloads
  std::optional<double> batch_size;        ///< images per rank and step; else as recorded
  std::optional<double> seconds_per_step;  ///< of the largest recorded network with that batch; else as recorded
  std::string network;                     ///< a file of `prunex bench all_reduce --json` in place of link and latency
  std::string gpu_kit;                     ///< gpu-kit/results/3-speed.txt in place of seconds per step
  bool overhead = false;                   ///< Setting::counts_overhead
  std::optional<double> accuracy;          ///< 0 to 1; else the best that all runs reach
};

/// Seconds until an accuracy, which the mean curve of the seeds has.
struct Reaching {
  double images = 0, seconds = 0;
  /// Over the mean curve and the seeds, widened by the scatter of timings; a seed that never gets there: its whole run.
  report::Interval range;
  size_t seeds = 0;  ///< that get there
};

/// A recorded run in one setting.
struct Row {
  size_t recorded = 0;  ///< its place in Plan::recorded
  Setting setting;
  bool is_recorded = false;  ///< else its accuracy is not known
  Prediction whole;          ///< of all images of the run, mean over the seeds
  report::Interval range;    ///< of whole.seconds, as Reaching::range
  std::optional<double> epoch_seconds;
  std::optional<Reaching> reaching;

  double wire_share() const { return whole.wire / whole.seconds; }
  /// Share of the time in which ranks compute: images per second and rank, to those of a rank alone.
  double efficiency() const { return whole.compute / whole.seconds; }
};

/// Images per second of a recorded row on so many nodes; nothing where a step would have less than an image per rank.
struct ScalingPoint {
  int nodes = 1;
  std::vector<std::optional<double>> images_per_second;  ///< by Scaling::rows
};

struct Scaling {
  std::vector<size_t> rows;          ///< places in Plan::rows
  std::vector<ScalingPoint> points;  ///< nodes rising
};

struct Plan {
  PlanOptions options;
  std::string task;                        ///< network and data set
  std::shared_ptr<const Network> network;  ///< of the cluster
  std::vector<Recorded> recorded;
  std::vector<std::string> left_out;        ///< "NAME: why"
  double target = 0;                        ///< accuracy
  std::vector<Row> rows;                    ///< those with an accuracy first, by seconds to it
  std::optional<size_t> recommended;        ///< of rows
  std::vector<std::string> advice;          ///< sentences, the most important first
  std::vector<std::string> caveats;         ///< what is assumed, and what is not known
  double network_gap = 0;                   ///< relative, of measured messages; widens ranges
  double macs = 0;                          ///< of an image, of the largest recorded network; 0 where no record says
  std::optional<double> images_per_second;  ///< of a rank with that network, where `gpu_kit` says it
  std::string rate_of;                      ///< of which of its lines
  Scaling weak;                             ///< the batch of every rank stays
  Scaling strong;                           ///< the images of a step stay, as recorded, divided among the ranks

  const Recorded& of(const Row& row) const { return recorded[row.recorded]; }
  double cost(double seconds) const;  ///< of all nodes
};

/// Throws std::invalid_argument: no run that fits, runs of several networks or data sets, an option without effect, no
/// run of which anything can be told.
Plan make_plan(const std::vector<report::Run>& runs, const PlanOptions& options);

/// What to take and why, how sure that is, whether it pays; what was assumed.
std::vector<std::string> advice_of(const Plan& plan);
std::vector<std::string> caveats_of(const Plan& plan);

/// Tables for a terminal of 100 columns; JSON; a page.
std::string to_text(const Plan& plan);
std::string to_json(const Plan& plan, const std::string& command);
std::string to_html(const Plan& plan, const report::Origin& origin);

}  // namespace prunex::plan
