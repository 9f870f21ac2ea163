#include "prunex/train/metrics_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "prunex/io/atomic_file.h"
#include "prunex/say.h"
#include "prunex/text/json.h"

namespace prunex::train {
namespace {

/// 0 if it is no line of an exchange.
int64_t exchange_of(const std::string& line) {
  try {
    return text::parse_json(line).at("exchange").get<int64_t>();
  } catch (const std::exception&) {
    return 0;
  }
}

}  // namespace

void MetricsFile::append(const Metrics& metrics) {
  try {
    lines_.append(to_json(metrics));
  } catch (const std::runtime_error& error) {
    if (!said_) say(fmt::format("prunex: warning: {}; the run goes on\n", error.what()));
    said_ = true;
  }
}

std::string MetricsFile::problem() {
  try {
    lines_.flush();
    return "";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

void keep_exchanges(const std::string& path, int64_t last) {
  if (std::filesystem::exists(path) && !std::filesystem::is_regular_file(path)) {
    throw std::runtime_error(fmt::format("{}: is not a regular file", path));
  }
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

}  // namespace prunex::train
