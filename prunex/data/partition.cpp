#include "prunex/data/partition.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "prunex/data/random.h"
#include "prunex/text/option.h"

namespace prunex::data {
namespace {

using Images = std::vector<int64_t>;

constexpr double kLeastConcentration = 0.01;  // far below it all draws of a class underflow
constexpr double kMostConcentration = 1e6;
enum DivisionStream : uint64_t { kClassOrder = 0x70617274, kShares, kNodeOrder };

/// By class the numbers of its images, in an order drawn from (seed, class).
std::vector<Images> images_by_class(const Dataset& dataset, uint64_t seed) {
  std::vector<Images> by_class(static_cast<size_t>(dataset.classes));
  const at::Tensor labels = dataset.labels.contiguous();
  for (int64_t i = 0; i < dataset.size(); ++i) by_class[labels.const_data_ptr<int64_t>()[i]].push_back(i);
  for (size_t c = 0; c < by_class.size(); ++c) {
    Random({seed, kClassOrder, c}).shuffle(by_class[c]);
  }
  return by_class;
}

/// Appends to every node its share of the images; shares add up to 1.
void deal(const Images& images, const std::vector<double>& shares, std::vector<Images>& nodes) {
  double sum = 0;
  size_t begin = 0;
  for (size_t node = 0; node < shares.size(); ++node) {
    sum += shares[node];
    const auto rounded = static_cast<size_t>(std::llround(sum * static_cast<double>(images.size())));
    const size_t end = node + 1 == shares.size() ? images.size() : std::min(rounded, images.size());
    nodes[node].insert(nodes[node].end(), images.begin() + begin, images.begin() + end);
    begin = end;
  }
}

std::vector<double> dirichlet_shares(double concentration, int64_t nodes, uint64_t seed, size_t label) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(Random({seed, kShares, label}).next());
  const at::Tensor shares = at::_sample_dirichlet(at::full({nodes}, concentration, at::kDouble), generator);
  const auto* first = shares.const_data_ptr<double>();
  return {first, first + nodes};
}

/// Of class `label`: equal for the nodes that have it.
std::vector<double> class_shares(int64_t classes_per_node, int64_t classes, int64_t nodes, int64_t label) {
  std::vector<double> shares(static_cast<size_t>(nodes));
  for (int64_t node = 0; node < nodes; ++node) {
    const int64_t place = ((label - node * classes_per_node) % classes + classes) % classes;
    shares[node] = place < classes_per_node ? 1 : 0;
  }
  const double holders = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= holders;
  return shares;
}

void check_classes(const Partition& partition, int64_t classes, int64_t nodes) {
  const int64_t least = (classes + nodes - 1) / nodes;
  if (partition.kind != Partition::Kind::kClasses) return;
  if (partition.classes >= least && partition.classes <= classes) return;
  throw std::invalid_argument(
      fmt::format("`partition`: got {}, wanted classes:{} to classes:{}: {} nodes share {} classes",
                  to_string(partition), least, classes, nodes, classes));
}

}  // namespace

std::optional<Partition> parse_partition(const std::string& word) {
  constexpr std::string_view kDirichlet = "dirichlet:", kClasses = "classes:";
  if (word == "iid") return Partition();
  if (word.starts_with(kDirichlet)) {
    const auto a = text::number_in<double>(word.substr(kDirichlet.size()));
    if (a && *a >= kLeastConcentration && *a <= kMostConcentration) return Partition{Partition::Kind::kDirichlet, *a};
  }
  if (word.starts_with(kClasses)) {
    const auto n = text::number_in<int64_t>(word.substr(kClasses.size()));
    if (n && *n >= 1) return Partition{Partition::Kind::kClasses, 1, *n};
  }
  return std::nullopt;
}

std::string to_string(const Partition& partition) {
  switch (partition.kind) {
    case Partition::Kind::kIid:
      return "iid";
    case Partition::Kind::kDirichlet:
      return fmt::format("dirichlet:{}", partition.concentration);
    case Partition::Kind::kClasses:
      return fmt::format("classes:{}", partition.classes);
  }
  return "";
}

std::vector<Images> divide(const Dataset& dataset, const Partition& partition, int64_t nodes, uint64_t seed) {
  TORCH_CHECK(partition.kind != Partition::Kind::kIid && nodes > 0, "[data] nothing divides the images of ", nodes,
              " nodes");
  check_classes(partition, dataset.classes, nodes);
  std::vector<Images> parts(static_cast<size_t>(nodes));
  const auto by_class = images_by_class(dataset, seed);
  for (size_t label = 0; label < by_class.size(); ++label) {
    const bool drawn = partition.kind == Partition::Kind::kDirichlet;
    deal(by_class[label],
         drawn ? dirichlet_shares(partition.concentration, nodes, seed, label)
               : class_shares(partition.classes, dataset.classes, nodes, static_cast<int64_t>(label)),
         parts);
  }
  for (auto& part : parts) std::sort(part.begin(), part.end());
  return parts;
}

uint64_t seed_of_node(uint64_t seed, int64_t node) {
  return Random({seed, kNodeOrder, static_cast<uint64_t>(node)}).next();
}

std::vector<int64_t> class_counts(const Dataset& dataset) {
  Images all(static_cast<size_t>(dataset.size()));
  std::iota(all.begin(), all.end(), 0);
  return class_counts(dataset, all);
}

std::vector<int64_t> class_counts(const Dataset& dataset, const Images& images) {
  std::vector<int64_t> counts(static_cast<size_t>(dataset.classes));
  const at::Tensor labels = dataset.labels.contiguous();
  for (const int64_t image : images) ++counts[labels.const_data_ptr<int64_t>()[image]];
  return counts;
}

}  // namespace prunex::data
