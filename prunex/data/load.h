// From the options of the command line to data sets.
#pragma once

#include <cstdint>
#include <string>

#include "prunex/data/dataset.h"

namespace prunex::data {

struct DataOptions {
  std::string dataset = "synthetic";  ///< synthetic, cifar10, cifar100, or a FILE.safetensors for training
  std::string test;                   ///< FILE.safetensors to test on; with a file as dataset only
  std::string data_dir = "data";      ///< folder of cifar10 and cifar100
  int64_t samples = 10000;            ///< training images of synthetic; a fifth of it for testing
  int64_t train_limit = 0;            ///< use the first N training images; 0 = all
  int64_t test_limit = 0;             ///< use the first N test images; 0 = all
  int64_t validation = 0;             ///< hold out the last N of the training images used; 0 = none
};

struct Datasets {
  Dataset train;
  Dataset validation;  ///< of size() 0 unless asked for
  Dataset test;
};

/// Reads or draws what the options name. The synthetic images are the same in every run, whatever the run's seed.
/// std::invalid_argument names the wrong option; std::runtime_error the file that is damaged.
Datasets load_datasets(const DataOptions& options);

}  // namespace prunex::data
