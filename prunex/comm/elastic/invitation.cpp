#include "prunex/comm/elastic/invitation.h"

#include <fmt/format.h>

#include <charconv>
#include <sstream>

#include "prunex/comm/elastic/call.h"

namespace prunex::comm {
namespace {

using std::chrono::milliseconds;

constexpr const char* kBeforeConfig = "\n\n";
constexpr size_t kMostInvitationBytes = 2 << 20;

}  // namespace

std::string RunDoors::text() const {
  std::string lines = fmt::format("{} {}\n", token, port);
  for (const Endpoint& door : doors) lines += door.text().append("\n");
  return lines;
}

RunDoors RunDoors::from_text(const std::string& text) {
  RunDoors run;
  std::istringstream lines(text);
  std::string first;
  std::getline(lines, first);
  std::istringstream fields(first);
  const bool fits = static_cast<bool>(fields >> run.token >> run.port) && fields.eof();
  for (Endpoint door; door.read(lines);) run.doors.push_back(door);
  if (!fits || run.doors.empty() || !lines.eof()) throw std::runtime_error("[comm] doors that are none");
  return run;
}

std::string approach(RunDoors& run, milliseconds patience) {
  const auto reached = connect_to_first(run.doors, std::chrono::steady_clock::now() + patience);
  if (!reached) throw NobodyThere(kNobodyAtTheDoors);
  std::swap(run.doors.front(), run.doors[reached->first]);
  return address_of(reached->second);
}

std::string interface_towards(RunDoors run, milliseconds patience) {
  const std::string address = approach(run, patience);
  return is_loopback(address) ? "" : interface_with(address);
}

std::string Invitation::text() const {
  std::string text = run.text();
  text.pop_back();
  return text + kBeforeConfig + config;
}

Invitation Invitation::from_text(const std::string& text) {
  const size_t end = text.find(kBeforeConfig);
  if (end == std::string::npos) throw std::runtime_error("[comm] an invitation that is none");
  return {RunDoors::from_text(text.substr(0, end + 1)), text.substr(end + 2)};
}

LinkKey entrance_key(const Privacy& privacy) {
  return link_key({privacy.secret, true}, "entrance");
}

std::optional<Endpoint> endpoint_in(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  Endpoint endpoint{text.substr(0, colon)};
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, endpoint.port);
  if (error != std::errc() || rest != end || endpoint.port == 0) return std::nullopt;
  std::string& host = endpoint.host;
  const bool in_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (in_brackets) host = host.substr(1, host.size() - 2);
  if (host.find_first_of(in_brackets ? "[]/" : "[]:/") != std::string::npos) return std::nullopt;
  return endpoint;
}

Invitation ask_for_invitation(const Endpoint& entrance, const Privacy& privacy, milliseconds patience) {
  const std::string place = name_of(entrance);
  const auto found = resolve_host(entrance.host, std::chrono::steady_clock::now() + patience);
  if (!found.problem.empty()) throw std::runtime_error(fmt::format("[comm] {}: {}", place, found.problem));
  for (size_t i = 0;; ++i) {
    try {
      const std::string text =
          fetch_from({found.hosts[i], entrance.port}, entrance_key(privacy), kMostInvitationBytes, patience, patience);
      return Invitation::from_text(text);
    } catch (const ConnectionRefused&) {
      if (i + 1 == found.hosts.size())
        throw NobodyThere(fmt::format("[comm] nobody answers at {}, no run with a secret", place));
    } catch (const std::runtime_error& error) {
      const bool last = i + 1 == found.hosts.size();
      if (last) throw std::runtime_error(fmt::format("{}; wanted a run under way that has this secret", error.what()));
    }
  }
}

}  // namespace prunex::comm
