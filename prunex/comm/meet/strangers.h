// Whoever has connected and has not proved that it knows the key yet is a stranger.
#pragma once

#include <chrono>
#include <list>
#include <map>
#include <string>

namespace prunex::comm {

/// How long one may take to say who it is.
inline constexpr std::chrono::milliseconds kUntilProven{10'000};

/// Of those that are strangers the oldest one from the address that most of them come from: who floods a port makes
/// room for its own, not for others. Each has a `host`.
template <class Caller, class IsStranger>
typename std::list<Caller>::iterator most_crowding(std::list<Caller>& callers, IsStranger is_stranger) {
  std::map<std::string, int> from;
  for (const Caller& caller : callers) from[caller.host] += is_stranger(caller);
  auto found = callers.end();
  for (auto caller = callers.begin(); caller != callers.end(); ++caller) {
    if (is_stranger(*caller) && (found == callers.end() || from[caller->host] > from[found->host])) found = caller;
  }
  return found;
}

}  // namespace prunex::comm
