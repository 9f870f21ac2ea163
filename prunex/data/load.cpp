#include "prunex/data/load.h"

#include <fmt/format.h>

#include <stdexcept>
#include <tuple>

#include "prunex/data/cifar.h"
#include "prunex/data/image_file.h"
#include "prunex/data/synthetic.h"

namespace prunex::data {
namespace {

constexpr uint64_t kSyntheticSeed = 0;

TrainAndTest read_named(const DataOptions& options) {
  if (!options.test.empty()) {
    throw std::invalid_argument(fmt::format("--test {}: goes with --dataset FILE.safetensors, got --dataset {}",
                                            options.test, options.dataset));
  }
  if (options.dataset == "synthetic") return make_synthetic(options.samples, kSyntheticSeed);
  if (options.dataset == "cifar10") return read_cifar10(options.data_dir);
  if (options.dataset == "cifar100") return read_cifar100(options.data_dir);
  throw std::invalid_argument(fmt::format(
      "--dataset {}: unknown; synthetic, cifar10, cifar100 or a FILE.safetensors is wanted", options.dataset));
}

TrainAndTest read(const DataOptions& options) {
  if (!options.dataset.ends_with(".safetensors")) return read_named(options);
  if (options.test.empty()) {
    throw std::invalid_argument(fmt::format("--dataset {}: --test FILE.safetensors is wanted too", options.dataset));
  }
  return read_image_files(options.dataset, options.test);
}

}  // namespace

Datasets load_datasets(const DataOptions& options) {
  TrainAndTest all = read(options);
  Datasets result{.train = all.train, .validation = {}, .test = all.test};
  if (options.train_limit != 0) result.train = take_first(result.train, options.train_limit, "--train-limit");
  if (options.test_limit != 0) result.test = take_first(result.test, options.test_limit, "--test-limit");
  if (options.validation != 0)
    std::tie(result.train, result.validation) = split_validation(result.train, options.validation);
  return result;
}

}  // namespace prunex::data
