#include "prunex/data/load.h"

#include <fmt/format.h>
#include <unistd.h>

#include <stdexcept>
#include <tuple>

namespace prunex::data {
namespace {

constexpr uint64_t kSyntheticSeed = 0;

/// A word of the command line must not bring the machine to a standstill.
void expect_memory_for_synthetic(int64_t samples) {
  constexpr double kBytesPerSample = 1.2 * 3 * 32 * 32;  // with those of the test
  const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  const auto most = static_cast<int64_t>(memory / kBytesPerSample);
  if (samples <= most) return;
  throw std::invalid_argument(fmt::format(
      "`samples`: got {}, wanted at most {}, which fill the {:.1f} GB of this machine", samples, most, memory / 1e9));
}

TrainAndTest read_named(const DataOptions& options) {
  if (!options.test.empty()) {
    throw std::invalid_argument(fmt::format("`test` {}: goes with `dataset` FILE.safetensors, got `dataset` {}",
                                            options.test, options.dataset));
  }
  if (options.dataset == "synthetic") {
    expect_memory_for_synthetic(options.samples);
    return make_synthetic(options.samples, kSyntheticSeed);
  }
  if (options.dataset == "cifar10") return read_cifar10(options.data_dir);
  if (options.dataset == "cifar100") return read_cifar100(options.data_dir);
  throw std::invalid_argument(fmt::format(
      "`dataset` {}: unknown; synthetic, cifar10, cifar100 or a FILE.safetensors is wanted", options.dataset));
}

TrainAndTest read(const DataOptions& options) {
  if (!options.dataset.ends_with(".safetensors")) return read_named(options);
  if (options.test.empty()) {
    throw std::invalid_argument(fmt::format("`dataset` {}: `test` FILE.safetensors is wanted too", options.dataset));
  }
  return read_image_files(options.dataset, options.test);
}

}  // namespace

Datasets load_datasets(const DataOptions& options) {
  TrainAndTest all = read(options);
  Datasets result{.train = all.train, .validation = {}, .test = all.test};
  if (options.train_limit != 0) result.train = take_first(result.train, options.train_limit, "`train_limit`");
  if (options.test_limit != 0) result.test = take_first(result.test, options.test_limit, "`test_limit`");
  if (options.validation != 0)
    std::tie(result.train, result.validation) = split_validation(result.train, options.validation);
  return result;
}

}  // namespace prunex::data
