// What a reader might look for in vain.
#pragma once

#include <string>
#include <vector>

#include "report/page.h"
#include "report/report.h"
#include "report/study.h"

namespace prunex::report {

/// Takes the figures out that have nothing to show; a line for every reason says which.
std::vector<std::string> take_missing(std::vector<Chapter>& chapters);

/// Of a task: runs that are not finished, intervals that one seed does not give, the ddp to hold others against.
std::vector<std::string> missing_of(const Task& task);

/// Of comparisons: runs that failed or have not begun.
std::vector<std::string> missing_of(const Findings& findings);

}  // namespace prunex::report
