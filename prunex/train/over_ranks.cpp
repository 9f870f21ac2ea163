#include "prunex/train/over_ranks.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <set>
#include <stdexcept>
#include <utility>

#include "prunex/text/option.h"
#include "prunex/train/local_step.h"

namespace prunex::train {

void average_over_ranks(Metrics& metrics, const comm::Volume& moved, Wishes& wishes, comm::Hierarchy& ranks) {
  const double counted = ranks.layout.node() == 0 ? 1 : 0;
  const double mean = ranks.share / ranks.layout.world_size();
  std::vector<std::pair<double*, double>> parts{{&metrics.loss, mean}};
  each_field(metrics.seconds, [&](const char*, double& seconds) { parts.emplace_back(&seconds, mean); });
  auto inter = static_cast<double>(moved.sent_to_nodes), bound = moved.least_to_nodes;
  auto intra = static_cast<double>(moved.sent - moved.sent_to_nodes);
  for (double* bytes : {&inter, &bound, &intra}) parts.emplace_back(bytes, counted);
  for (double* asked : {&wishes.checkpoint, &wishes.stop, &wishes.signals}) parts.emplace_back(asked, 1);
  at::Tensor sums = at::empty({static_cast<int64_t>(parts.size())}, at::kDouble);
  double* sum = sums.data_ptr<double>();
  for (size_t i = 0; i < parts.size(); ++i) sum[i] = *parts[i].first * parts[i].second;
  ranks.world->all_reduce(sums);
  for (size_t i = 0; i < parts.size(); ++i) *parts[i].first = sum[i];
  metrics.bytes = {std::llround(inter), std::llround(bound), std::llround(intra)};
}

int Wishes::signal() const {
  for (const int one : {SIGINT, SIGHUP}) {
    if (signals == one * stop) return one;
  }
  return SIGTERM;
}

std::vector<admm::Residuals> gather(const admm::Residuals& own, comm::Communicator& world) {
  const at::Tensor mine = at::tensor({own.r_intra, own.s_intra, own.r_inter, own.s_inter}, at::kDouble);
  at::Tensor all = at::empty({world.size(), 4}, at::kDouble);
  world.all_gather(all, mine);
  std::vector<admm::Residuals> by_rank;
  for (int64_t rank = 0; rank < all.size(0); ++rank) {
    const double* norms = all[rank].const_data_ptr<double>();
    by_rank.push_back({norms[0], norms[1], norms[2], norms[3]});
  }
  return by_rank;
}

Arithmetic decide_arithmetic(Precision precision, const c10::Device& device, comm::Communicator& world) {
  if (precision == Precision::kFp32) return Arithmetic::kFp32;
  if (precision == Precision::kTf32) return Arithmetic::kTf32;
  if (precision == Precision::kBf16) return Arithmetic::kBf16;
  if (!device.is_cpu()) return device.is_cuda() ? Arithmetic::kTf32 : Arithmetic::kFp32;
  at::Tensor without = at::zeros({1}, at::kLong).fill_(is_faster_in_bf16() ? 0 : 1);
  world.all_reduce(without);
  return without.item<int64_t>() == 0 ? Arithmetic::kBf16 : Arithmetic::kFp32;
}

int64_t count_of_all(const std::vector<int64_t>& numbers, comm::Communicator& world) {
  at::Tensor longest = at::full({1}, static_cast<int64_t>(numbers.size()), at::kLong);
  world.all_reduce(longest, comm::Reduce::kMax);
  at::Tensor mine = at::full({longest.item<int64_t>()}, -1, at::kLong);
  std::copy(numbers.begin(), numbers.end(), mine.data_ptr<int64_t>());
  at::Tensor all = at::empty({world.size(), mine.numel()}, at::kLong);
  world.all_gather(all, mine);
  const int64_t* first = all.const_data_ptr<int64_t>();
  std::set<int64_t> different(first, first + all.numel());
  different.erase(-1);
  return static_cast<int64_t>(different.size());
}

void expect_same_options(const std::string& config, comm::Communicator& world) {
  const auto everyone = comm::gather_texts(world, config);
  for (size_t rank = 1; rank < everyone.size(); ++rank) {
    auto differs = first_difference(everyone[0], everyone[rank], Among::kRanks);
    if (!differs && (differs = first_difference(everyone[rank], everyone[0], Among::kRanks)))
      std::swap(differs->one, differs->other);
    if (!differs) continue;
    throw std::invalid_argument(fmt::format("{}: rank 0 has {}, rank {} {}: wanted the same on all ranks",
                                            text::field_name(differs->option), differs->one, rank, differs->other));
  }
}

void check_agreement(const sparsity::Cut& cut, comm::Communicator& world) {
  if (world.size() == 1) return;
  const auto other = first_other(static_cast<int64_t>(sparsity::hash(cut)), world);
  if (other) throw std::runtime_error(fmt::format("rank {} would cut the network differently from rank 0", *other));
}

void add_traffic(std::map<std::string, comm::Traffic>& sums, const comm::Hierarchy& ranks) {
  sums["node"] += ranks.node->traffic();
  sums["rail"] += ranks.rail->traffic();
  sums["flat"] += ranks.flat->traffic();
  if (!ranks.site) return;
  sums["site"] += ranks.site->traffic();
  sums["cross"] += ranks.cross->traffic();
}

void add_by_node(comm::NodeInterfaceBytes& sums, const comm::NodeInterfaceBytes& more) {
  for (auto& [name, nodes] : sums) {
    const auto found = more.find(name);
    if (found == more.end() || found->second.size() != nodes.size()) continue;
    for (size_t node = 0; node < nodes.size(); ++node) nodes[node] += found->second[node];
  }
}

}  // namespace prunex::train
