#include "prunex/train/run/metrics_file.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

#include "prunex/io/event_file.h"
#include "prunex/say.h"
#include "prunex/text/json.h"
#include "prunex/train/elastic/elastic.h"

namespace prunex::train {
namespace {

namespace fs = std::filesystem;

std::string lines_in(const std::string& directory) {
  return directory + "/metrics.jsonl";
}

std::string changes_in(const std::string& directory) {
  return directory + "/membership.jsonl";
}

std::string events_in(const std::string& directory) {
  return directory + "/" + kEventFile;
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

using Scalars = std::vector<std::pair<std::string, double>>;

void add_number(Scalars& scalars, const std::string& tag, const nlohmann::ordered_json& value) {
  if (value.is_number()) scalars.emplace_back(tag, value.get<double>());
}

/// The numbers of a line and of the objects right in it, such as seconds/local: tensors and ranks have no curves.
Scalars scalars_of(const std::string& line) {
  Scalars scalars;
  const auto metrics = text::parse_ordered_json(line);
  for (const auto& [name, value] : metrics.items()) {
    add_number(scalars, name, value);
    if (!value.is_object()) continue;
    for (const auto& [part, inner] : value.items()) add_number(scalars, name + "/" + part, inner);
  }
  return scalars;
}

}  // namespace

void attempt(const std::function<void()>& write, bool& said) {
  try {
    write();
  } catch (const std::runtime_error& error) {
    if (!said) say(fmt::format("prunex: warning: {}; the run goes on\n", error.what()));
    said = true;
  }
}

MetricsFile::MetricsFile(const std::string& directory, bool tensorboard)
    : directory_(directory), lines_(lines_in(directory)) {
  if (!tensorboard) return;
  const std::string path = events_in(directory);
  if (!fs::exists(path)) io::write_file_atomically(path, io::event_file_head(seconds_since_1970()));
  events_.emplace(path);
}

void MetricsFile::append(const Metrics& metrics) {
  const std::string line = to_json(metrics);
  attempt([&] { lines_.append(line + "\n"); }, said_);
  if (events_)
    attempt([&] { events_->append(io::event_record(seconds_since_1970(), metrics.step, scalars_of(line))); }, said_);
}

void MetricsFile::append(const comm::Change& change, int64_t exchange) {
  unopened_ += to_json(change, exchange) + "\n";
  attempt([&] { append_changes(); }, said_);
}

/// Their file is there once nodes have come or gone.
void MetricsFile::append_changes() {
  if (unopened_.empty()) return;
  if (!changes_) changes_.emplace(changes_in(directory_));
  changes_->append(std::exchange(unopened_, ""));
}

std::string MetricsFile::problem() {
  try {
    lines_.flush();
    if (events_) events_->flush();
    append_changes();
    if (changes_) changes_->flush();
    return "";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

namespace {

/// 0 if it is no line of an exchange.
int64_t exchange_of(const std::string& line) {
  try {
    return text::parse_json(line).at("exchange").get<int64_t>();
  } catch (const std::exception&) {
    return 0;
  }
}

void keep_lines(const std::string& path, int64_t last) {
  std::ifstream file(path);
  std::string kept;
  int64_t count = 0, latest = 0;
  for (std::string line; std::getline(file, line);) {
    const int64_t exchange = exchange_of(line);
    if (exchange <= latest || exchange > last) continue;
    kept += line + '\n';
    latest = exchange;
    ++count;
  }
  if (count < last) {
    say(
        fmt::format("prunex: warning: {}: got {} whole lines of the exchanges 1 to {}, the rest is left out; the run "
                    "goes on\n",
                    path, count, last));
  }
  io::write_file_atomically(path, kept);
}

void keep_events(const std::string& path, int64_t step) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  io::write_file_atomically(path, io::events_until(bytes, step));
}

}  // namespace

void keep_exchanges(const std::string& directory, int64_t last, int64_t step) {
  const std::string lines = lines_in(directory), events = events_in(directory);
  for (const auto& path : {lines, events}) {
    if (fs::exists(path) && !fs::is_regular_file(path)) {
      throw std::runtime_error(fmt::format("{}: is not a regular file", path));
    }
  }
  keep_lines(lines, last);
  if (fs::exists(events)) keep_events(events, step);
}

void keep_changes(const std::string& directory, int64_t lost, int64_t joined) {
  const std::string path = changes_in(directory);
  if (!fs::exists(path)) return;
  std::ifstream file(path);
  std::string kept;
  for (std::string line; std::getline(file, line);) {
    try {
      const auto change = text::parse_json(line);
      lost -= static_cast<int64_t>(change.at("lost").size());
      joined -= static_cast<int64_t>(change.at("joined").size());
    } catch (const std::exception&) {
      break;  // no line of a change
    }
    if (lost < 0 || joined < 0) break;
    kept += line + '\n';
  }
  io::write_file_atomically(path, kept);
}

}  // namespace prunex::train
