// What the page is made of: a drawing, what it shows, and the numbers behind it. The figures of a task, in families.
// None of them throws: what the runs lack, the figure says.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/format.h"
#include "report/plot.h"
#include "report/tasks.h"

namespace prunex::report {

inline const Axis kSamples{"training images seen"};

struct LegendEntry {
  std::string name;
  int style = 0;
};

struct Figure {
  std::string id, title;
  std::string text;  ///< what is drawn and how to read it
  std::vector<std::string> drawings;
  std::vector<LegendEntry> legend;
  bool boxes = false;         ///< the legend's samples are filled boxes
  std::vector<Table> tables;  ///< one per drawing; without drawings they are shown themselves
  bool folded = false;        ///< tables are shown when asked for, though there is no drawing
  bool unfolded = false;      ///< tables are shown, though there is a drawing
  std::string missing;        ///< why there is nothing, or what is not in it

  bool is_empty() const { return drawings.empty() && tables.empty(); }
};

/// Plots below each other as a figure: one legend and a table per plot, of the series with points that the axes can
/// show. Where there is a colour for everyone, or nobody has one, series in grey take those that are free. `text`
/// explains it.
Figure figure_of(const std::string& id, const std::string& title, std::vector<Plot> plots,
                 const std::string& text = "");
/// Bars as a figure.
Figure figure_of(const std::string& id, const std::string& title, const Bars& bars, const std::string& text = "");
/// A figure that says what is missing.
Figure missing_figure(const std::string& id, const std::string& title, const std::string& missing);

/// One series per variant that has points; the variant's name and style.
std::vector<Series> series_of(const Task& task, const Curve& curve, bool marks);

/// A phase as the files of runs call it, and as a reader is told.
struct Phase {
  std::string_view name, words;
  double Seconds::*part = nullptr;
};

/// In the order in which they follow each other; a colour each. What has no row of its own is the last.
inline constexpr std::array<Phase, 7> kPhases{{{"local", "local steps", &Seconds::local},
                                               {"intra", "sum in the node", &Seconds::intra},
                                               {"project", "node update and masks", &Seconds::project},
                                               {"inter", "between nodes", &Seconds::inter},
                                               {"dual", "duals and residuals", &Seconds::dual},
                                               {"evaluate", "evaluation", &Seconds::evaluate},
                                               {"cut", "cut of the network, other"}}};

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
/// What products take images of one class for.
Figure answers_figure(const Task& task);
/// Images that they are sure of, and wrong.
Figure mistakes_figure(const Task& task);
/// What every rank did when.
Figure timeline_figure(const Task& task);
/// Computed time at a bandwidth, fronts and cross-over points.
std::vector<Figure> bandwidth_figures(const Task& task);

/// Checked times, pilots and failures of comparisons.
std::vector<Figure> comparison_figures(const Findings& findings);

/// One row per variant.
Table summary_table(const Task& task);

/// Of every run to the best ddp, over pairs of equal seeds, with the seeds that it would take to tell them apart. Empty
/// where there are no two pairs.
Figure difference_figure(const Task& task);

/// Bytes that a node sent to others per training image; nothing on one node.
std::optional<double> bytes_per_sample(const Run& run);
std::optional<double> accuracy_of(const Run& run);
/// Of training and exchanges, without evaluation.
double training_seconds(const Seconds& seconds);

/// Which of the points (x: smaller is better, y: larger is better) no other one beats; in order of x.
std::vector<size_t> pareto_front(const std::vector<Point>& points);

}  // namespace prunex::report
