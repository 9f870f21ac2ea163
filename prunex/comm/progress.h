// How far the ranks have come, and which one holds the others up.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace prunex::comm {

/// One rank in one of its groups. Operations of a group are numbered from 1, in the same order on all its ranks.
struct GroupProgress {
  std::string group;
  int64_t entered = 0;    ///< number of the newest operation
  int64_t done = 0;       ///< operations completed
  std::string operation;  ///< name of the newest one

  bool waiting() const { return entered > done; }
};

/// A rank's groups, those without an operation included.
using Progress = std::vector<GroupProgress>;

/// One line of text per group; decode() leaves out what it does not understand.
std::string encode(const Progress& progress);
Progress decode(const std::string& text);

/// The rank's place in a group; null if it is not a member.
const GroupProgress* find_group(const Progress& progress, const std::string& group);
/// The operation that the rank waits in; null if none.
const GroupProgress* find_wait(const Progress& progress);

struct Laggard {
  int rank = 0;
  int waiting_rank = 0;
  GroupProgress wait;  ///< of waiting_rank: what the laggard has not entered
};

/// Whom does this rank wait for in the end? From its operations to the members that are furthest behind, from there, if
/// they wait in other operations themselves, on; where all have come, by way of those who wait elsewhere, too. Nothing
/// if it does not wait, or all that it waits for have come, or ranks wait in a circle.
std::optional<Laggard> find_laggard(const std::map<int, Progress>& ranks, int rank);

/// Two ranks in operations of the same group and number, but not of the same name; nothing if there are none.
std::optional<std::pair<int, int>> find_disagreement(const std::map<int, Progress>& ranks, int rank);

}  // namespace prunex::comm
