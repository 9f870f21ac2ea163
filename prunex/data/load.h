// Data sets: by the options of a command line, drawn, or read from files of several kinds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "prunex/data/dataset.h"
#include "prunex/data/description.h"

namespace prunex::data {

struct DataOptions {
  std::string dataset = "synthetic";    ///< one of set_names(), FILE.safetensors, a folder or shards.tar
  std::string test;                     ///< what to test on, as `dataset` is one
  std::string data_dir = "data";        ///< folder of the sets that are read from one
  int64_t samples = 10000;              ///< training images of synthetic; a fifth of it for testing
  int64_t train_limit = 0;              ///< use the first N training images; 0 = all
  int64_t test_limit = 0;               ///< use the first N test images; 0 = all
  int64_t validation = 0;               ///< hold out the last N of the training images used; 0 = none
  std::optional<Augmentation> augment;  ///< of training images; nothing: what is usual for the set
  int64_t image_size = 0;               ///< of folders: side of the images; 0 = what `augment` says, else 224
  int64_t resize = 0;                   ///< of folders: shorter side before the middle is tested; 0 = 8/7 of the size
  int64_t data_threads = 4;             ///< that decode
  int64_t prefetch = 4;                 ///< batches that are decoded ahead
  int64_t max_broken = 10;              ///< files of a set that may be broken
  bool numbers_are_labels = false;      ///< of folders that are numbers, as those that stand for labels of shards
  bool is_share = false;                ///< of a node: the test set may have classes that only other nodes train on
};

/// Data sets that have a name instead of a file: all, or those that are read from `data_dir`.
std::vector<std::string> set_names(bool in_folder_alone = false);

/// Whether the words name images that are decoded when they are wanted.
bool is_streamed(const std::string& dataset);

/// Of folders and shards: height and width of images as a network sees them.
int64_t side_of_images(const DataOptions& options);

/// The first `n` images, of what is streamed in a random order that is the same in all runs; all if `n` is 0. Throws
/// as take_first() does.
Dataset limited(const Dataset& dataset, int64_t n, const std::string& option);

/// Reads or draws what the options name. The synthetic images are the same in every run, whatever the run's seed.
/// std::invalid_argument names the wrong option; std::runtime_error the file that is damaged.
/// `known`: names of classes that images from a folder may have, open_streams().
Datasets load_datasets(const DataOptions& options, const std::vector<std::string>& known = {});

// Images drawn by a procedure, for trials without any download.

/// `samples` training images and samples / 5 (at least 10) test images, 32 x 32 in colour, of 10 balanced classes:
/// disc, ring, square, frame, triangle, plus, cross, horizontal stripes, vertical stripes, checks. Place, size, tilt,
/// colours, lighting, clutter and noise are random, so no pixel by itself tells the class.
/// Image i is a function of (seed, i) alone, on every platform; more samples extend the same sequence.
/// std::invalid_argument names `samples` if it is below 10.
Datasets make_synthetic(int64_t samples, uint64_t seed);

// CIFAR-10 and CIFAR-100 in the binary layout of their authors, https://www.cs.toronto.edu/~kriz/cifar.html.

/// Reads data_batch_1.bin … data_batch_5.bin and test_batch.bin from FOLDER/cifar-10-batches-bin or FOLDER itself.
/// Classes are named by batches.meta.txt if it lies beside them.
/// A wrong folder is a std::invalid_argument naming `data_dir`; a damaged file a std::runtime_error naming the file.
Datasets read_cifar10(const std::string& folder);

/// Reads train.bin and test.bin from FOLDER/cifar-100-binary or FOLDER itself; the labels are the 100 fine ones, named
/// by fine_label_names.txt.
Datasets read_cifar100(const std::string& folder);

// Anyone's own images as safetensors files.

/// Both files hold `images` (uint8, N x C x H x W) and `labels` (int64, N), with images of one shape. There are as
/// many classes as the largest label of the training file says, and the test file has no others unless training images
/// are a share of all; mean and std are those of the training images, which are not augmented: nobody knows what they
/// show. A std::invalid_argument or std::runtime_error names the file that is not so.
Datasets read_image_files(const std::string& train, const std::string& test, bool is_share = false);

/// One such file by itself, without mean and std: a test set for a network that brings its own.
Dataset read_image_file(const std::string& path);

// Folders of images, one per class, and tar shards: decoded when they are wanted, normalised by ImageNet's usual
// numbers: mean 0.485, 0.456, 0.406 and std 0.229, 0.224, 0.225.

/// `dataset`/train/CLASS/… and `dataset`/val/CLASS/… or `test`/CLASS/…; or the shards `dataset` and `test`. `known`:
/// labels are numbers of these names if all classes of the folder are among them. Throws as list_folder() and
/// list_shards() do.
Datasets open_streams(const DataOptions& options, const std::vector<std::string>& known = {});

/// Of a folder `dataset`; none of other sets, whose classes have no names. Throws likewise.
std::vector<std::string> names_of_classes(const DataOptions& options);
bool are_all_among(const std::vector<std::string>& some, const std::vector<std::string>& all);
/// "0", "1", … up to the largest of the names, if all of these are numbers, as labels of shards are; else none.
std::vector<std::string> numbers_up_to(const std::vector<std::string>& names);

/// `test`/CLASS/… or the shards `test` by themselves; classes are those of a network, or its own if it knows none.
Dataset open_test_stream(const DataOptions& options, const Description& description);

}  // namespace prunex::data
