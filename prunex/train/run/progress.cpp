#include "prunex/train/run/progress.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prunex/say.h"
#include "prunex/text/json.h"

namespace prunex::train {
namespace {

using nlohmann::ordered_json;

std::string bar(double done) {
  constexpr int kWidth = 20;
  const int full = std::clamp(static_cast<int>(done * kWidth + 0.5), 0, kWidth);
  return std::string(full, '=') + std::string(kWidth - full, ' ');
}

/// Of the terminal behind standard error; 0 if it does not say.
size_t columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::string joined(const std::vector<std::string>& fields) {
  return fmt::format("{}", fmt::join(fields, "  "));
}

/// What of the fields has room in so many columns beside what is there: without those before the last one, from behind;
/// else cut. A full line would wrap on some terminals.
std::string fitted(std::vector<std::string> fields, size_t beside, size_t width) {
  if (width == 0) return joined(fields);
  const size_t room = width > beside + 1 ? width - beside - 1 : 0;
  while (fields.size() > 2 && joined(fields).size() > room) fields.erase(fields.end() - 2);
  return joined(fields).substr(0, room);
}

std::string now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::now()));
}

ordered_json event(const char* name) {
  return {{"event", name}, {"time", now()}};
}

int64_t dense_bytes_of(Summary run) {
  run.exchanges = 1;
  return dense_exchange_bytes(run);
}

}  // namespace

std::string clock_time(double seconds) {
  const auto s = static_cast<int64_t>(seconds + 0.5);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

Progress::Progress(Summary run, int64_t exchanges, LogForm form, bool quiet)
    : run_(std::move(run)),
      exchanges_(exchanges),
      dense_bytes_(dense_bytes_of(run_)),
      form_(form),
      quiet_(quiet),
      redraws_(form == LogForm::kPlain && isatty(STDERR_FILENO) != 0) {}

/// The one place that writes.
void Progress::print(const std::string& text) const {
  say(text);
}

void Progress::say_line(const std::string& text) {
  if (quiet_) return;
  finish();
  print(form_ == LogForm::kTimestamps ? fmt::format("{} {}\n", now(), text) : text + '\n');
}

void Progress::start(const std::string& directory) {
  directory_ = directory;
  if (form_ == LogForm::kJson) {
    ordered_json json = event("start");
    json.update({{"model", run_.model},
                 {"parameters", run_.parameters_dense},
                 {"nodes", run_.shape.nodes()},
                 {"ranks", run_.shape.world_size()},
                 {"exchanges", exchanges_},
                 {"exchanges_before", run_.exchanges},
                 {"local_steps", run_.local_steps},
                 {"precision", run_.precision},
                 {"run_directory", directory_}});
    return say_line(text::json_text(json));
  }
  const std::string from = run_.exchanges > 0 ? fmt::format(", going on after exchange {}", run_.exchanges) : "";
  say_line(fmt::format("{}: {} parameters, {}, {} exchanges of {} steps{}, {}, run directory {}", run_.model,
                       run_.parameters_dense, comm::describe(run_.shape), exchanges_, run_.local_steps, from,
                       run_.precision, directory_));
}

std::vector<std::string> Progress::fields_of(const Metrics& metrics, double seconds_left,
                                             double samples_per_second) const {
  const std::string_view phase = metrics.phase;
  std::vector<std::string> fields{
      fmt::format("{} {}/{}", phase == "train" ? "exchange" : phase, metrics.exchange.index, exchanges_),
      fmt::format("loss {:.4f}", metrics.loss)};
  if (metrics.accuracy) fields.push_back(fmt::format("accuracy {:.2f} %", 100 * *metrics.accuracy));
  fields.push_back(
      fmt::format("kept {:.0f} %{}", 100 * metrics.exchange.keep, metrics.exchange.frozen ? " (final)" : ""));
  fields.push_back(fmt::format("{:.0f} samples/s", samples_per_second));
  if (dense_bytes_ > 0) {
    const auto sent = static_cast<double>(metrics.bytes.inter_node);
    const double share = sent / static_cast<double>(dense_bytes_);
    fields.push_back(fmt::format("{:.2f} MB sent, {:.0f} % saved", sent / 1e6, 100 * std::max(0.0, 1 - share)));
  }
  fields.push_back(metrics.exchange.converged ? "the residuals are below the tolerance"
                                              : fmt::format("{} left", clock_time(seconds_left)));
  return fields;
}

std::string Progress::json_of(const Metrics& metrics, double seconds_left, double samples_per_second) const {
  ordered_json json = event("exchange");
  json.update({{"phase", metrics.phase},
               {"exchange", metrics.exchange.index},
               {"exchanges", exchanges_},
               {"loss", metrics.loss}});
  if (metrics.accuracy) json["accuracy"] = *metrics.accuracy;
  json.update({{"keep", metrics.exchange.keep},
               {"frozen", metrics.exchange.frozen},
               {"converged", metrics.exchange.converged},
               {"samples_per_second", samples_per_second},
               {"inter_node_bytes", metrics.bytes.inter_node},
               {"seconds_left", seconds_left}});
  return text::json_text(json);
}

void Progress::report(const Metrics& metrics, double seconds_so_far, double samples_per_second) {
  if (quiet_) return;
  const double done = static_cast<double>(metrics.exchange.index) / static_cast<double>(exchanges_);
  const double left = seconds_so_far * (1 - done) / done;
  if (form_ == LogForm::kJson) return say_line(json_of(metrics, left, samples_per_second));
  const auto fields = fields_of(metrics, left, samples_per_second);
  if (!redraws_) return say_line(joined(fields));
  const std::string head = fmt::format("[{}] ", bar(done));
  const bool stays = metrics.accuracy.has_value();  // and may take two rows
  print(fmt::format("\r\033[K{}{}", head, stays ? joined(fields) : fitted(fields, head.size(), columns())));
  unfinished_ = true;
  if (stays) finish();
}

void Progress::finish() {
  if (unfinished_) print("\n");
  unfinished_ = false;
}

void Progress::done() {
  if (form_ != LogForm::kJson) {
    return say_line(fmt::format("the model is {}; {} draws the run", model_file(), report_command()));
  }
  ordered_json json = event("end");
  json.update({{"model", model_file()}, {"report", report_command()}});
  say_line(text::json_text(json));
}

}  // namespace prunex::train
