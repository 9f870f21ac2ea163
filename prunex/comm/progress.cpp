#include "prunex/comm/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <set>
#include <sstream>

namespace prunex::comm {
namespace {

// The member of the wait's group that is furthest behind it; -1 if none is.
int furthest_behind(const std::map<int, Progress>& ranks, const GroupProgress& wait) {
  int furthest = -1;
  int64_t least = wait.entered;
  for (const auto& [rank, progress] : ranks) {
    const auto* place = find_group(progress, wait.group);
    if (place == nullptr || place->entered >= least) continue;
    least = place->entered;
    furthest = rank;
  }
  return furthest;
}

}  // namespace

std::string encode(const Progress& progress) {
  std::string text;
  for (const auto& place : progress) {
    text += fmt::format("{}\t{}\t{}\t{}\n", place.group, place.entered, place.done, place.operation);
  }
  return text;
}

Progress decode(const std::string& text) {
  Progress progress;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    GroupProgress place;
    std::istringstream fields(line);
    if (!std::getline(fields, place.group, '\t') || !(fields >> place.entered >> place.done)) continue;
    fields.get();
    std::getline(fields, place.operation);
    progress.push_back(std::move(place));
  }
  return progress;
}

const GroupProgress* find_group(const Progress& progress, const std::string& group) {
  const auto found =
      std::find_if(progress.begin(), progress.end(), [&](const auto& one) { return one.group == group; });
  return found == progress.end() ? nullptr : &*found;
}

const GroupProgress* find_wait(const Progress& progress) {
  const auto found = std::find_if(progress.begin(), progress.end(), [](const auto& one) { return one.waiting(); });
  return found == progress.end() ? nullptr : &*found;
}

std::optional<Laggard> find_laggard(const std::map<int, Progress>& ranks, int rank) {
  std::deque<int> open = {rank};
  std::set<int> seen = {rank};
  for (; !open.empty(); open.pop_front()) {
    for (const auto& wait : ranks.at(open.front())) {
      if (!wait.waiting()) continue;
      const int behind = furthest_behind(ranks, wait);
      if (behind >= 0 && find_wait(ranks.at(behind)) == nullptr) return Laggard{behind, open.front(), wait};
      for (const auto& [other, progress] : ranks) {
        const bool leads_on = behind >= 0 ? other == behind : find_group(progress, wait.group) != nullptr;
        if (leads_on && seen.insert(other).second) open.push_back(other);
      }
    }
  }
  return std::nullopt;
}

std::optional<std::pair<int, int>> find_disagreement(const std::map<int, Progress>& ranks, int rank) {
  const auto* wait = ranks.count(rank) > 0 ? find_wait(ranks.at(rank)) : nullptr;
  if (wait == nullptr) return std::nullopt;
  for (const auto& [other, progress] : ranks) {
    const auto* place = find_group(progress, wait->group);
    if (place == nullptr || place->entered != wait->entered || place->operation == wait->operation) continue;
    return std::pair(rank, other);
  }
  return std::nullopt;
}

}  // namespace prunex::comm
