#include "prunex/data/load.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <stdexcept>
#include <tuple>

#include "prunex/data/augment.h"
#include "prunex/data/loader.h"

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

Datasets draw_synthetic(const DataOptions& options) {
  expect_memory_for_synthetic(options.samples);
  return make_synthetic(options.samples, kSyntheticSeed);
}

struct NamedSet {
  const char* name;
  bool in_folder;  // read from data_dir
  Datasets (*load)(const DataOptions& options);
};

const NamedSet kNamedSets[] = {
    {"synthetic", false, draw_synthetic},
    {"cifar10", true, [](const DataOptions& options) { return read_cifar10(options.data_dir); }},
    {"cifar100", true, [](const DataOptions& options) { return read_cifar100(options.data_dir); }},
};

Datasets read_named(const DataOptions& options) {
  if (!options.test.empty()) {
    throw std::invalid_argument(
        fmt::format("`test` {}: goes with `dataset` FILE.safetensors, a folder or shards, got `dataset` {}",
                    options.test, options.dataset));
  }
  for (const auto& set : kNamedSets) {
    if (set.name == options.dataset) return set.load(options);
  }
  throw std::invalid_argument(fmt::format(
      "`dataset`: got {}, wanted one of {}, FILE.safetensors, a folder, shards such as train-{{00..99}}.tar",
      options.dataset, fmt::join(set_names(), ", ")));
}

Datasets read(const DataOptions& options, const std::vector<std::string>& known) {
  if (is_streamed(options.dataset)) return open_streams(options, known);
  if (!options.dataset.ends_with(".safetensors")) return read_named(options);
  if (options.test.empty()) {
    throw std::invalid_argument(fmt::format("`dataset` {}: `test` FILE.safetensors is wanted too", options.dataset));
  }
  return read_image_files(options.dataset, options.test, options.is_share);
}

/// What is listed by class in an order of its own, so that the first N are of all classes.
Dataset mixed(const Dataset& dataset) {
  constexpr uint64_t kSeed = 0;
  return dataset.is_streamed() ? in_order(dataset, epoch_permutation(dataset.size(), kSeed, 0)) : dataset;
}

}  // namespace

std::vector<std::string> set_names(bool in_folder_alone) {
  std::vector<std::string> names;
  for (const auto& set : kNamedSets) {
    if (set.in_folder || !in_folder_alone) names.emplace_back(set.name);
  }
  return names;
}

Dataset limited(const Dataset& dataset, int64_t n, const std::string& option) {
  return n == 0 ? dataset : take_first(mixed(dataset), n, option);
}

Datasets load_datasets(const DataOptions& options, const std::vector<std::string>& known) {
  Datasets result = read(options, known);
  if (options.augment) {
    check_augmentation(*options.augment, result.train);
    result.train.augmentation = *options.augment;
  }
  if (options.train_limit != 0 || options.validation != 0) result.train = mixed(result.train);
  if (options.train_limit != 0) result.train = take_first(result.train, options.train_limit, "`train_limit`");
  result.test = limited(result.test, options.test_limit, "`test_limit`");
  if (options.validation != 0)
    std::tie(result.train, result.validation) = split_validation(result.train, options.validation);
  return result;
}

}  // namespace prunex::data
