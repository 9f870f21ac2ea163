#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "prunex/data/augment.h"
#include "prunex/data/image_stream.h"
#include "prunex/data/load.h"
#include "prunex/data/shards.h"
#include "prunex/text/option.h"

namespace prunex::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kUsualSize = 224;
constexpr int64_t kMostNumbers = 100'000;  // that folders are taken for

StreamOptions stream_options(const DataOptions& options) {
  StreamOptions stream{.size = side_of_images(options),
                       .threads = options.data_threads,
                       .prefetch = options.prefetch,
                       .max_broken = options.max_broken};
  stream.resize = options.resize != 0 ? options.resize : usual_resize(stream.size);
  if (stream.resize < stream.size) {
    throw std::invalid_argument(fmt::format(
        "`resize`: got {}, wanted {} or more, the side of the square that is cut out", stream.resize, stream.size));
  }
  return stream;
}

std::string name_of(const std::string& path) {
  const fs::path folder = fs::path(path).lexically_normal();
  return (folder.has_filename() ? folder : folder.parent_path()).filename().string();
}

bool are_shards(const std::string& path) {
  return path.ends_with(".tar");
}

Dataset dataset_of(Listing listing, const std::string& name, const StreamOptions& stream) {
  const auto named = static_cast<int64_t>(listing.classes.size());
  return {.name = name,
          .images = {},
          .labels = listing.labels,
          .classes = named > 0 ? named : listing.labels.max().item<int64_t>() + 1,
          .mean = {0.485, 0.456, 0.406},
          .std = {0.229, 0.224, 0.225},
          .augmentation = {.crop_size = stream.size, .flip = true},
          .class_names = listing.classes,
          .streamed = {.stream = std::make_shared<ImageStream>(std::move(listing.images), stream)}};
}

std::string part_of(const std::string& folder, const char* name) {
  const std::string part = (fs::path(folder) / name).string();
  if (fs::is_directory(part)) return part;
  throw std::invalid_argument(fmt::format("`dataset` {}: no folder {} in it: wanted {}/CLASS/*.jpg{}", folder, name,
                                          part, std::string(name) == "val" ? ", or `test`" : ""));
}

Dataset shards_of(const std::string& pattern, const std::string& option, const StreamOptions& stream) {
  return dataset_of(list_shards(pattern, option), fs::path(pattern).stem().string(), stream);
}

/// Labels of training are all that there are.
void check_classes(const Dataset& test, int64_t classes, const std::string& what) {
  if (test.classes <= classes) return;
  throw std::invalid_argument(fmt::format("{}: labels go up to {}, wanted up to {}: no others to test on", what,
                                          test.classes - 1, classes - 1));
}

Datasets open_shards(const DataOptions& options, const StreamOptions& stream) {
  if (!are_shards(options.test)) {
    throw std::invalid_argument(
        fmt::format("`test`: got {}, wanted shards such as val-{{00..07}}.tar, as `dataset` {} is",
                    options.test.empty() ? "none" : options.test, options.dataset));
  }
  Datasets sets{.train = shards_of(options.dataset, "`dataset`", stream),
                .test = shards_of(options.test, "`test`", stream)};
  if (options.is_share) return sets;
  check_class_count(sets.train.classes, sets.train.size(), "`dataset` " + options.dataset);
  check_classes(sets.test, sets.train.classes, "`test` " + options.test);
  sets.test.classes = sets.train.classes;
  return sets;
}

/// Where all folders are numbers, as labels of shards are, each stands for the label that it says.
void label_by_value(Listing& listing) {
  const auto all = numbers_up_to(listing.classes);
  if (all.empty()) return;
  std::vector<int64_t> numbers;
  for (const auto& name : listing.classes) numbers.push_back(*text::number_in<int64_t>(name));
  listing.labels = at::tensor(numbers, at::kLong).index_select(0, listing.labels);
  listing.classes = all;
}

}  // namespace

int64_t side_of_images(const DataOptions& options) {
  if (options.image_size != 0) return options.image_size;
  const int64_t said = options.augment ? options.augment->crop_size : 0;
  return said != 0 ? said : kUsualSize;
}

bool is_streamed(const std::string& dataset) {
  const auto names = set_names();
  if (std::find(names.begin(), names.end(), dataset) != names.end()) return false;
  return are_shards(dataset) || fs::is_directory(dataset);
}

bool are_all_among(const std::vector<std::string>& some, const std::vector<std::string>& all) {
  return std::all_of(some.begin(), some.end(),
                     [&](const std::string& name) { return std::find(all.begin(), all.end(), name) != all.end(); });
}

std::vector<std::string> numbers_up_to(const std::vector<std::string>& names) {
  int64_t most = -1;
  for (const auto& name : names) {
    const auto number = text::number_in<int64_t>(name);
    if (!number || *number < 0 || *number >= kMostNumbers || std::to_string(*number) != name) return {};
    most = std::max(most, *number);
  }
  return names_or_numbers({}, most + 1);
}

std::vector<std::string> names_of_classes(const DataOptions& options) {
  if (!is_streamed(options.dataset) || are_shards(options.dataset)) return {};
  return list_folder(part_of(options.dataset, "train"), {}, "`dataset`").classes;
}

Datasets open_streams(const DataOptions& options, const std::vector<std::string>& known) {
  const StreamOptions stream = stream_options(options);
  if (are_shards(options.dataset)) return open_shards(options, stream);
  const std::string train = part_of(options.dataset, "train");
  const std::string test = options.test.empty() ? part_of(options.dataset, "val") : options.test;
  Listing training = list_folder(train, {}, "`dataset`");
  if (training.classes != known && are_all_among(training.classes, known)) {
    training = list_folder(train, known, "`dataset`");
  }
  if (options.numbers_are_labels) label_by_value(training);
  const auto classes = training.classes;
  Datasets sets;
  sets.train = dataset_of(std::move(training), name_of(options.dataset), stream);
  sets.test = dataset_of(list_folder(test, classes, options.test.empty() ? "`dataset`" : "`test`"),
                         name_of(options.test.empty() ? options.dataset : test), stream);
  return sets;
}

Dataset open_test_stream(const DataOptions& options, const Description& description) {
  if (are_shards(options.test)) {
    Dataset test = shards_of(options.test, "`test`", stream_options(options));
    const auto classes = static_cast<int64_t>(description.classes.size());
    if (classes == 0) {
      check_class_count(test.classes, test.size(), "`test` " + options.test);
      return test;
    }
    check_classes(test, classes, "`test` " + options.test);
    test.classes = classes;
    return test;
  }
  Listing listing = list_folder(options.test, description.classes, "`test`");
  if (description.classes.empty()) label_by_value(listing);
  return dataset_of(std::move(listing), name_of(options.test), stream_options(options));
}

}  // namespace prunex::data
