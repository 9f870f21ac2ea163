#include "prunex/train/images/division.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace prunex::train {
namespace {

using data::Partition;

int64_t sum_of(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

int64_t classes_in(const std::vector<int64_t>& counts) {
  return std::count_if(counts.begin(), counts.end(), [](int64_t count) { return count > 0; });
}

}  // namespace

int64_t Division::images_of(size_t node) const {
  return sum_of(class_counts[node]);
}

int64_t Division::fewest() const {
  int64_t least = images_of(0);
  for (size_t node = 1; node < class_counts.size(); ++node) least = std::min(least, images_of(node));
  return least;
}

int64_t Division::total() const {
  int64_t sum = 0;
  for (size_t node = 0; node < class_counts.size(); ++node) sum += images_of(node);
  return sum;
}

void expect_a_step_of_each(const Division& division, const TrainOptions& options, const std::string& what) {
  const comm::Layout shape = shape_of(options);
  for (int node = 0; node < shape.nodes(); ++node) {
    const int64_t images = division.images_of(node);
    const int ranks = shape.node_sizes[node];
    if (images / ranks >= options.batch_size) continue;
    throw std::invalid_argument(fmt::format(
        "{}: node {} has {} images, wanted {} or more, a step of its {} x {}: try a smaller `batch_size`{}", what, node,
        images, ranks * options.batch_size, ranks, options.batch_size,
        options.partition.kind == Partition::Kind::kDirichlet ? ", a larger concentration or another `seed`" : ""));
  }
}

std::optional<Division> divide(const TrainOptions& options, const data::Dataset& training) {
  if (options.partition.kind == Partition::Kind::kIid) return std::nullopt;
  Division division{data::to_string(options.partition),
                    data::divide(training, options.partition, options.nodes, options.seed)};
  for (const auto& images : division.images) division.class_counts.push_back(data::class_counts(training, images));
  expect_a_step_of_each(division, options, "`partition` " + division.rule);
  return division;
}

data::Loader make_loader(const TrainOptions& options, const comm::Layout& layout, const data::Dataset& training,
                         const std::optional<Division>& division) {
  data::LoaderOptions batches{
      .batch_size = options.batch_size, .rank = layout.rank, .ranks = layout.world_size(), .seed = options.seed};
  if (!division) return {training, batches};
  batches.rank = layout.local_rank();
  batches.ranks = layout.ranks_here();
  batches.seed = data::seed_of_node(options.seed, layout.node());
  if (division->images.empty()) return {training, batches};  // the node's own files
  return {training, batches, division->images[layout.node()]};
}

std::string remark_on(const Division& division) {
  constexpr size_t kNamed = 4;
  std::vector<int64_t> images, classes;
  for (size_t node = 0; node < division.class_counts.size(); ++node) {
    images.push_back(division.images_of(node));
    classes.push_back(classes_in(division.class_counts[node]));
  }
  if (images.size() > kNamed) {
    const auto [fewest, most] = std::minmax_element(images.begin(), images.end());
    const auto [least, all] = std::minmax_element(classes.begin(), classes.end());
    return fmt::format("partition {}: {} nodes have {} to {} images of {} to {} classes", division.rule, images.size(),
                       *fewest, *most, *least, *all);
  }
  std::vector<std::string> nodes;
  for (size_t node = 0; node < images.size(); ++node) {
    nodes.push_back(fmt::format("node {} has {} images of {} classes", node, images[node], classes[node]));
  }
  return fmt::format("partition {}: {}", division.rule, fmt::join(nodes, ", "));
}

std::vector<double> accuracy_by_node(const Division& division, const Evaluation& test) {
  std::vector<double> accuracies;
  for (const auto& counts : division.class_counts) {
    double sum = 0, weight = 0;
    for (size_t label = 0; label < counts.size(); ++label) {
      if (test.images_by_class[label] == 0) continue;
      const auto images = static_cast<double>(counts[label]);
      sum += images * test.correct_by_class[label] / test.images_by_class[label];
      weight += images;
    }
    accuracies.push_back(weight > 0 ? sum / weight : 0);
  }
  return accuracies;
}

}  // namespace prunex::train
