// The figures of a task, in families. None of them throws: what the runs lack, the figure says.
#pragma once

#include <vector>

#include "report/figure.h"

namespace prunex::report {

struct Findings;

/// Accuracy and loss against time and against bytes between nodes; the front of accuracy and bytes; kept share.
std::vector<Figure> accuracy_figures(const Task& task);
/// Message sizes with mask changes, total volumes, bytes against the bound.
std::vector<Figure> traffic_figures(const Task& task);
/// Time per exchange, its parts, where a run's time goes, scaling.
std::vector<Figure> time_figures(const Task& task);
/// Residuals in all, by tensor and by rank.
std::vector<Figure> residual_figures(const Task& task);
/// Compute per step, patterns of kept units.
std::vector<Figure> network_figures(const Task& task);
/// What every rank did when.
Figure timeline_figure(const Task& task);
/// Computed time at a bandwidth, fronts and cross-over points.
std::vector<Figure> bandwidth_figures(const Task& task);

/// Checked times, pilots and failures of comparisons.
std::vector<Figure> comparison_figures(const Findings& findings);

/// One row per variant.
Table summary_table(const Task& task);

/// Bytes that a node sent to others per training image; nothing on one node.
std::optional<double> bytes_per_sample(const Run& run);
std::optional<double> accuracy_of(const Run& run);
/// Of training and exchanges, without evaluation.
double training_seconds(const Seconds& seconds);

/// Which of the points (x: smaller is better, y: larger is better) no other one beats; in order of x.
std::vector<size_t> pareto_front(const std::vector<Point>& points);

}  // namespace prunex::report
