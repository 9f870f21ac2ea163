// One HTML file that needs nothing else: no network, no script.
#pragma once

#include <string>
#include <vector>

#include "report/figure.h"

namespace prunex::report {

struct Section {
  std::string title;
  std::string setup;    ///< stated at every figure
  std::string command;  ///< likewise
  Table summary;
  std::string note;  ///< below the summary
  std::vector<Figure> figures;
  Table runs;  ///< what each of them was told
};

struct Page {
  std::string title;
  std::string command;                   ///< that made this page
  std::vector<std::string> comparisons;  ///< commands that made the runs, stated at `others`
  std::vector<Section> sections;
  std::vector<Figure> others;  ///< tables about all of them
  std::vector<std::string> problems;
};

/// Well-formed as XML, too.
std::string to_html(const Page& page);

}  // namespace prunex::report
