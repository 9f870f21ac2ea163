#include "prunex/comm/slurm.h"

#include <charconv>
#include <string_view>

namespace prunex::comm {
namespace {

constexpr size_t kMostNodes = 1 << 20;

/// Takes a whole number above 0 off the front.
std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 1) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

bool take(std::string_view& text, std::string_view front) {
  const bool found = text.starts_with(front);
  if (found) text.remove_prefix(front.size());
  return found;
}

/// 1 without "(xN)".
std::optional<int> take_repeats(std::string_view& text) {
  if (!take(text, "(x")) return 1;
  const auto count = take_number(text);
  return take(text, ")") ? count : std::nullopt;
}

}  // namespace

std::optional<std::string> first_host(const std::string& hosts) {
  std::string host;
  for (size_t i = 0; i < hosts.size() && hosts[i] != ','; ++i) {
    if (hosts[i] != '[') {
      host += hosts[i];
      continue;
    }
    const auto first = hosts.find_first_of("-,]", i), end = hosts.find(']', i);
    if (end == std::string::npos || first == i + 1) return std::nullopt;
    host += hosts.substr(i + 1, first - i - 1);
    i = end;
  }
  return host.empty() ? std::nullopt : std::optional(host);
}

std::optional<std::vector<int>> tasks_per_node(const std::string& text) {
  std::vector<int> tasks;
  std::string_view rest = text;
  do {
    const auto number = take_number(rest);
    const auto repeats = number ? take_repeats(rest) : std::nullopt;
    if (!repeats || tasks.size() + static_cast<size_t>(*repeats) > kMostNodes) return std::nullopt;
    tasks.insert(tasks.end(), static_cast<size_t>(*repeats), *number);
  } while (take(rest, ","));
  return rest.empty() ? std::optional(tasks) : std::nullopt;
}

uint16_t port_of_step(int64_t job, int64_t step) {
  return static_cast<uint16_t>(15000 + (job + 1009 * step) % 15000);
}

}  // namespace prunex::comm
