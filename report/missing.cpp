#include "report/missing.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "report/verdict.h"

namespace prunex::report {
namespace {

constexpr size_t kMostNames = 12;

/// "a, b and 3 more".
std::string list_of(const std::vector<std::string>& names) {
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kMostNames); ++i) list += (i == 0 ? "" : ", ") + names[i];
  return names.size() > kMostNames ? list + fmt::format(" and {} more", names.size() - kMostNames) : list;
}

void add(std::vector<std::string>& lines, const std::string& what, const std::vector<std::string>& names) {
  if (!names.empty()) lines.push_back(what + ": " + list_of(names));
}

}  // namespace

std::vector<std::string> take_missing(std::vector<Chapter>& chapters) {
  std::vector<std::string> lines, reasons;
  std::map<std::string, std::vector<std::string>> titles;
  for (auto& [subject, figures] : chapters) {
    for (const auto& figure : figures) {
      if (!figure.is_empty()) continue;
      if (!titles.contains(figure.missing)) reasons.push_back(figure.missing);
      titles[figure.missing].push_back(figure.title);
    }
    std::erase_if(figures, [](const Figure& figure) { return figure.is_empty(); });
  }
  for (const auto& reason : reasons) lines.push_back(fmt::format("{}: {}", list_of(titles[reason]), reason));
  return lines;
}

std::vector<std::string> missing_of(const Task& task) {
  std::vector<std::string> lines, unfinished, single;
  for (const auto& variant : task.variants) {
    const size_t done = variant.finished().size(), all = variant.runs.size();
    if (done < all) unfinished.push_back(fmt::format("{} ({} of {})", variant.name, all - done, all));
    if (done == 1) single.push_back(variant.name);
  }
  add(lines, "not finished", unfinished);
  add(lines, "one finished seed, so no interval", single);
  if (reference(task) == nullptr && task.variants.size() > 1) {
    lines.emplace_back("points against ddp: wanted a finished run of ddp");
  }
  return lines;
}

std::vector<std::string> missing_of(const Findings& findings) {
  std::vector<std::string> lines, failed;
  for (const auto& failure : findings.failures) failed.push_back(failure.name);
  add(lines, "failed", failed);
  add(lines, "not begun", findings.waiting);
  return lines;
}

}  // namespace prunex::report
