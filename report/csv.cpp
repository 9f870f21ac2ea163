#include <fmt/format.h>

#include <string>
#include <vector>

#include "report/report.h"
#include "report/run.h"

namespace prunex::report {
namespace {

using Cells = std::vector<std::string>;

std::string cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted;
  for (const char byte : text) quoted += byte == '"' ? "\"\"" : std::string(1, byte);
  return '"' + quoted + '"';
}

/// As RFC 4180 has it.
std::string line_of(const Cells& cells) {
  std::string line;
  for (const auto& text : cells) line += (line.empty() ? "" : ",") + cell(text);
  return line + "\r\n";
}

Cells header() {
  Cells cells{"run", "name", "seed"};
  for (const auto& [name, of] : kCounted) cells.emplace_back(name);
  for (const char* name : {"loss", "lr", "accuracy", "keep", "frozen"}) cells.emplace_back(name);
  for (const auto& [name, of] : kResiduals) cells.push_back(fmt::format("residuals.{}", name));
  for (const auto& [name, of] : kSeconds) cells.push_back(fmt::format("seconds.{}", name));
  return cells;
}

Cells row_of(const Run& run, const Exchange& exchange) {
  Cells cells{run.directory, run.name, run.option("seed")};
  const auto add = [&](const auto& value) { cells.push_back(fmt::format("{}", value)); };
  for (const auto& [name, of] : kCounted) add(exchange.*of);
  add(exchange.loss);
  for (const auto& known : {exchange.learning_rate, exchange.accuracy}) {
    cells.push_back(known ? fmt::format("{}", *known) : "");
  }
  add(exchange.keep);
  add(exchange.frozen);
  for (const auto& [name, of] : kResiduals) add(exchange.residuals.*of);
  for (const auto& [name, of] : kSeconds) add(exchange.seconds.*of);
  return cells;
}

}  // namespace

std::string exchanges_csv(const std::vector<Run>& runs) {
  std::string lines = line_of(header());
  for (const auto& run : runs) {
    for (const auto& exchange : run.exchanges) lines += line_of(row_of(run, exchange));
  }
  return lines;
}

}  // namespace prunex::report
