// What is known about the networks of tests/data/prune/make_cases.py.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "tests/channels/case_check.h"

namespace prunex::channels {

struct Case {
  std::string name;
  std::string groups;  ///< "a:8 b:6 c:4!": names and units of all groups inside the network; "!" is refused
  std::string reason;  ///< part of a reason of a refusal
  Mask mask = Mask::kColumns;
  GroupOptions options;

  friend void PrintTo(const Case& item, std::ostream* out) { *out << item.id(); }
  std::string id() const { return name + (options.statistics ? "_statistics" : "") + (options.heads ? "_heads" : ""); }
};

std::vector<Case> all_cases();

}  // namespace prunex::channels
