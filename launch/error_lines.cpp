#include "launch/error_lines.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "prunex/comm/communicator.h"
#include "prunex/say.h"

namespace prunex::launch {
namespace {

constexpr std::string_view kRankPrefix = "[rank ", kRankPrefixEnd = "] ";
constexpr size_t kShownLines = 64;
constexpr std::chrono::seconds kSameCause{5};  // what ranks write alike so close together

bool reports_loss(const std::string& text) {
  return text.find(comm::kLostRank) != std::string::npos;
}

}  // namespace

std::string message_of(std::string_view line) {
  const auto end = line.starts_with(kRankPrefix) ? line.find(kRankPrefixEnd) : std::string_view::npos;
  if (end != std::string_view::npos) line.remove_prefix(end + kRankPrefixEnd.size());
  if (constexpr std::string_view kCommand = "prunex: "; line.starts_with(kCommand)) line.remove_prefix(kCommand.size());
  return std::string(line);
}

void ErrorLines::add(int rank, std::string_view bytes, Clock::time_point now) {
  auto& partial = partial_[rank];
  for (const char byte : bytes) {
    if (byte != '\n') {
      partial += byte;
      continue;
    }
    hold({rank, partial, reports_loss(partial) ? Clock::time_point::max() : now + kDelay});
    partial.clear();
  }
}

bool ErrorLines::unfinished(int rank) const {
  const auto found = partial_.find(rank);
  return found != partial_.end() && !found->second.empty();
}

void ErrorLines::hold(Line line) {
  last_[line.rank] = line.text;
  if (only_ < 0 || line.rank == only_) held_.push_back(std::move(line));
}

bool ErrorLines::reported_loss(int rank) const {
  return wrote(rank) && reports_loss(last_.at(rank));
}

void ErrorLines::show_due(Clock::time_point now) {
  std::deque<Line> kept;
  for (auto& line : held_) {
    if (line.due > now)
      kept.push_back(std::move(line));
    else
      show(std::move(line));
  }
  held_ = std::move(kept);
}

void ErrorLines::show(Line line) {
  const auto same = [&](const Line& shown) {
    return shown.text == line.text && shown.rank != line.rank && line.due - shown.due < kSameCause;
  };
  if (std::any_of(shown_.begin(), shown_.end(), same)) return;
  const auto prefix = line.rank == 0 ? "" : fmt::format("{}{}{}", kRankPrefix, line.rank, kRankPrefixEnd);
  say(prefix + line.text + "\n");
  shown_.push_back(std::move(line));
  if (shown_.size() > kShownLines) shown_.pop_front();
}

void ErrorLines::keep_only(int rank) {
  only_ = rank;
  held_.erase(std::remove_if(held_.begin(), held_.end(), [&](const Line& line) { return line.rank != rank; }),
              held_.end());
}

}  // namespace prunex::launch
