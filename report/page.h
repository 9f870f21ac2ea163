// One HTML file that needs nothing else: no network, no script.
#pragma once

#include <string>
#include <vector>

#include "report/figures.h"
#include "report/tasks.h"

namespace prunex::report {

struct Findings;

/// The looks of a page.
extern const char* const kStyleSheet;

/// Figures of one subject.
struct Chapter {
  std::string title;
  std::vector<Figure> figures;
};

struct Section {
  std::string title;
  std::vector<std::string> verdict;  ///< sentences, the first above all
  std::string setup;
  Table summary;
  std::string note;  ///< below the summary
  Figure differences;
  std::vector<Chapter> chapters;
  std::string command;  ///< what all runs share
  Table own_options;    ///< what they do not
  Table runs;           ///< one row each; may be empty
};

/// The end of the page.
struct Footer {
  std::vector<std::string> assumed;      ///< what holds only if it is so
  std::vector<std::string> missing;      ///< what one might look for in vain
  std::vector<std::string> problems;     ///< files that could not be read
  std::vector<std::string> origins;      ///< builds, machines and sittings, if runs differ in them
  std::vector<std::string> comparisons;  ///< commands that made runs
  std::vector<Cell> sources;             ///< where runs were looked for
  std::string made;                      ///< when and by what
  std::string command;                   ///< that made this page
};

struct Page {
  std::string title;
  std::vector<Section> sections;
  std::vector<Figure> others;  ///< tables about all of them
  Footer footer;
};

/// Well-formed as XML, too.
std::string to_html(const Page& page);

/// From a page in `folder` to a directory: relative, in the characters that a URL may hold, so that nothing in a path
/// is taken for a scheme. Empty if the directory is not there.
std::string link_to(const std::string& directory, const std::string& folder);

/// Takes the figures out that have nothing to show; a line for every reason says which.
std::vector<std::string> take_missing(std::vector<Chapter>& chapters);

/// Of a task: runs that are not finished, or of a seed that is there, intervals that one seed does not give, the ddp to
/// hold others against.
std::vector<std::string> missing_of(const Task& task);

/// Which runs are of which build and machine, and timed in which sitting, or not: a line for each, if there are
/// several, or timings of another processor than their runs.
std::vector<std::string> origins_of(const std::vector<Run>& runs);

/// Of comparisons: runs that failed or have not begun.
std::vector<std::string> missing_of(const Findings& findings);

}  // namespace prunex::report
