#include "prunex/train/images/division.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

namespace prunex::train {
namespace {

constexpr std::string_view kNode = "{node}";

std::string with_node(std::string text, int node) {
  for (size_t at; (at = text.find(kNode)) != std::string::npos;) text.replace(at, kNode.size(), std::to_string(node));
  return text;
}

data::DataOptions options_of(data::DataOptions options, int node) {
  for (std::string* name : {&options.data_dir, &options.dataset, &options.test}) *name = with_node(*name, node);
  options.is_share = true;
  return options;
}

enum Fact { kChannels, kHeight, kWidth, kClasses, kImages, kTestClasses, kTestImages, kTestSum };
using SetNumbers = std::vector<int64_t>;

SetNumbers numbers_of(const data::Datasets& sets) {
  const auto shape = sets.train.image_shape();
  return {shape[0],          shape[1],          shape[2],         sets.train.classes,
          sets.train.size(), sets.test.classes, sets.test.size(), data::checksum(sets.test)};
}

std::string where_of(const data::DataOptions& options) {
  return options.dataset.find(kNode) != std::string::npos ? "`dataset` " + options.dataset
         : options.test.find(kNode) != std::string::npos  ? "`test` " + options.test
                                                          : "`data_dir` " + options.data_dir;
}

void expect_alike(const std::vector<SetNumbers>& nodes, const data::DataOptions& options) {
  const auto shape = [](const SetNumbers& facts) {
    return fmt::format("{} x {} x {}", facts[kChannels], facts[kHeight], facts[kWidth]);
  };
  for (size_t node = 1; node < nodes.size(); ++node) {
    const SetNumbers &own = nodes[node], &first = nodes[0];
    if (shape(own) != shape(first)) {
      throw std::invalid_argument(fmt::format("{}: images of node {} are {}, those of node 0 {}: wanted equal sizes",
                                              where_of(options), node, shape(own), shape(first)));
    }
    if (own[kTestImages] == first[kTestImages] && own[kTestSum] == first[kTestSum]) continue;
    throw std::invalid_argument(
        fmt::format("{}: node {} has other test images than node 0: wanted the same", where_of(options), node));
  }
}

/// Throws std::invalid_argument for labels that can hardly be meant, and for images to test on whose class no node has.
int64_t classes_of_all(const std::vector<SetNumbers>& nodes, const data::DataOptions& options) {
  int64_t most = 0, tested = 0, images = 0;
  for (const SetNumbers& facts : nodes) {
    most = std::max(most, facts[kClasses]);
    tested = std::max(tested, facts[kTestClasses]);
    images += facts[kImages];
  }
  data::check_class_count(most, images, where_of(options));
  if (tested <= most) return most;
  throw std::invalid_argument(fmt::format("{}: labels of the test images go up to {}, those that nodes train on to {}",
                                          where_of(options), tested - 1, most - 1));
}

/// What one node has, padded to the classes of all.
std::vector<int64_t> counts_of(const data::Dataset& training, int64_t classes) {
  auto counts = data::class_counts(training);
  counts.resize(static_cast<size_t>(classes));
  return counts;
}

/// Rows of all ranks -> those of the first rank of every node.
std::vector<std::vector<int64_t>> gather_by_node(const std::vector<int64_t>& own, comm::Hierarchy& ranks) {
  const auto columns = static_cast<int64_t>(own.size());
  at::Tensor all = at::empty({ranks.world->size(), columns}, at::kLong);
  ranks.world->all_gather(all, at::tensor(own, at::kLong));
  std::vector<std::vector<int64_t>> nodes;
  for (int node = 0; node < ranks.layout.nodes(); ++node) {
    const auto* row = all[ranks.layout.first_rank(node)].const_data_ptr<int64_t>();
    nodes.emplace_back(row, row + columns);
  }
  return nodes;
}

std::vector<data::Dataset*> sets_of(RunImages& images) {
  std::vector<data::Dataset*> sets;
  for (data::Dataset* set : {&images.sets.train, &images.sets.validation, &images.sets.test}) {
    if (set->size() > 0) sets.push_back(set);
  }
  return sets;
}

/// Classes of all nodes, and node 0's mean and std.
void adopt(RunImages& images, int64_t classes, const std::vector<double>& mean, const std::vector<double>& std) {
  for (data::Dataset* set : sets_of(images)) {
    set->classes = classes;
    set->mean = mean;
    set->std = std;
  }
  images.description.mean = mean;
  images.description.std = std;
}

void broadcast(std::vector<double>& numbers, comm::Communicator& world) {
  at::Tensor tensor = at::tensor(numbers, at::kDouble);
  world.broadcast(tensor);
  numbers.assign(tensor.const_data_ptr<double>(), tensor.const_data_ptr<double>() + tensor.numel());
}

/// Labels are numbers of these names on every node: those of the network, if it knows all; none for what has no names.
std::vector<std::string> names_of_all(const std::set<std::string>& own, const std::optional<Carried>& carried) {
  std::vector<std::string> names(own.begin(), own.end());
  if (!carried) return names;
  const auto& known = carried->description.classes;
  if (known.empty()) {
    const auto numbers = data::numbers_up_to(names);
    return numbers.empty() ? names : numbers;
  }
  return data::are_all_among(names, known) ? known : names;
}

std::set<std::string> names_over_ranks(const data::DataOptions& options, comm::Communicator& world) {
  const auto own = data::names_of_classes(options);
  std::set<std::string> all;
  for (const auto& text : comm::gather_texts(world, fmt::format("{}", fmt::join(own, "/")))) {  // in no folder's name
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('/', begin), text.size());
      all.insert(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return all;
}

NodeFiles load_over_ranks(const TrainOptions& options, const std::optional<Carried>& carried, comm::Hierarchy& ranks) {
  const data::DataOptions data = options_of(options.data, ranks.layout.node());
  NodeFiles files{load_images(data, carried, names_of_all(names_over_ranks(data, *ranks.world), carried))};
  const auto facts = gather_by_node(numbers_of(files.images.sets), ranks);
  expect_alike(facts, options.data);
  std::vector<double> mean = files.images.sets.train.mean, std = files.images.sets.train.std;
  broadcast(mean, *ranks.world);
  broadcast(std, *ranks.world);
  const int64_t classes = classes_of_all(facts, options.data);
  adopt(files.images, classes, mean, std);
  files.division.class_counts = gather_by_node(counts_of(files.images.sets.train, classes), ranks);
  return files;
}

NodeFiles load_all(const TrainOptions& options, const std::optional<Carried>& carried) {
  NodeFiles files;
  std::vector<SetNumbers> facts;
  std::set<std::string> names;
  for (int node = 0; node < options.nodes; ++node) {
    for (auto& name : data::names_of_classes(options_of(options.data, node))) names.insert(std::move(name));
  }
  for (int node = 0; node < options.nodes; ++node) {
    RunImages images = load_images(options_of(options.data, node), carried, names_of_all(names, carried));
    facts.push_back(numbers_of(images.sets));
    files.division.class_counts.push_back(counts_of(images.sets.train, images.sets.train.classes));
    if (node == 0) files.images = std::move(images);
  }
  expect_alike(facts, options.data);
  const auto mean = files.images.sets.train.mean, std = files.images.sets.train.std;
  const int64_t classes = classes_of_all(facts, options.data);
  adopt(files.images, classes, mean, std);
  for (auto& counts : files.division.class_counts) counts.resize(static_cast<size_t>(classes));
  return files;
}

}  // namespace

bool has_files_by_node(const data::DataOptions& options) {
  return (options.data_dir + options.dataset + options.test).find(kNode) != std::string::npos;
}

NodeFiles load_by_node(const TrainOptions& options, const std::optional<Carried>& carried, comm::Hierarchy* ranks) {
  if (options.partition.kind != data::Partition::Kind::kIid) {
    throw std::invalid_argument(fmt::format("`partition`: got {} besides {}, which divides already: wanted one of them",
                                            data::to_string(options.partition), where_of(options.data)));
  }
  NodeFiles files = ranks != nullptr ? load_over_ranks(options, carried, *ranks) : load_all(options, carried);
  files.division.rule = "files by node";
  expect_a_step_of_each(files.division, options, where_of(options.data));
  return files;
}

}  // namespace prunex::train
