// CIFAR-10 and CIFAR-100 in the binary layout of their authors, https://www.cs.toronto.edu/~kriz/cifar.html.
#pragma once

#include <string>

#include "prunex/data/dataset.h"

namespace prunex::data {

/// Reads data_batch_1.bin … data_batch_5.bin and test_batch.bin from FOLDER/cifar-10-batches-bin or FOLDER itself.
/// Classes are named by batches.meta.txt if it lies beside them.
/// A wrong folder is a std::invalid_argument naming `data_dir`; a damaged file a std::runtime_error naming the file.
TrainAndTest read_cifar10(const std::string& folder);

/// Reads train.bin and test.bin from FOLDER/cifar-100-binary or FOLDER itself; the labels are the 100 fine ones, named
/// by fine_label_names.txt.
TrainAndTest read_cifar100(const std::string& folder);

}  // namespace prunex::data
