#include "prunex/train/metrics_file.h"

#include <fmt/format.h>

#include <stdexcept>

#include "prunex/say.h"

namespace prunex::train {

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

}  // namespace prunex::train
