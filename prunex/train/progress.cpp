#include "prunex/train/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "prunex/say.h"

namespace prunex::train {
namespace {

std::string clock_time(double seconds) {
  const auto s = static_cast<int64_t>(seconds + 0.5);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

std::string bar(double done) {
  constexpr int kWidth = 20;
  const int full = static_cast<int>(done * kWidth + 0.5);
  return std::string(full, '=') + std::string(kWidth - full, ' ');
}

}  // namespace

Progress::Progress(int64_t exchanges, int64_t dense_bytes_per_exchange, bool quiet)
    : exchanges_(exchanges),
      dense_bytes_(dense_bytes_per_exchange),
      quiet_(quiet),
      terminal_(isatty(STDERR_FILENO) != 0) {}

void Progress::report(const Metrics& metrics, double seconds_so_far, double samples_per_second) {
  if (quiet_) return;
  if (metrics.accuracy) accuracy_ = *metrics.accuracy;
  const int64_t k = metrics.exchange.index;
  const double done = static_cast<double>(k) / static_cast<double>(exchanges_);
  const double left = seconds_so_far * (1 - done) / done;
  std::string line = terminal_ ? fmt::format("[{}] ", bar(done)) : "";
  const std::string_view phase = metrics.phase;
  line += fmt::format("{} {}/{}  loss {:.4f}", phase == "train" ? "exchange" : phase, k, exchanges_, metrics.loss);
  if (accuracy_ >= 0) line += fmt::format("  accuracy {:.2f} %", 100 * accuracy_);
  line += fmt::format("  kept {:.0f} %{}", 100 * metrics.exchange.keep, metrics.exchange.frozen ? " (final)" : "");
  line += fmt::format("  {:.0f} samples/s", samples_per_second);
  if (dense_bytes_ > 0) {
    const double share = static_cast<double>(metrics.bytes.inter_node) / static_cast<double>(dense_bytes_);
    line += fmt::format("  {:.2f} MB sent, {:.0f} % saved", static_cast<double>(metrics.bytes.inter_node) / 1e6,
                        100 * std::max(0.0, 1 - share));
  }
  line += fmt::format("  {} left", clock_time(left));
  say(terminal_ ? "\r\033[K" + line : line + "\n");
}

void Progress::finish() {
  if (!quiet_ && terminal_) say("\n");
}

}  // namespace prunex::train
