// Packing and unpacking resnet18's weights next to memcpy and at::index_select of the same entries. Pin it to a core:
// taskset -c 0 bench_pack
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <vector>

#include "prunex/models/models.h"
#include "prunex/sparsity/compaction.h"

namespace prunex::sparsity {
namespace {

constexpr int kRounds = 60;
constexpr int64_t kCacheBytes = 128 << 20;  // more than any of this processor's

/// Which rows and input channels of a convolution stay; undefined: all.
struct Kept {
  at::Tensor rows, channels;
};

struct Case {
  const char* name;
  std::function<Kept(int64_t rows, int64_t channels)> kept;
};

at::Tensor first_half(int64_t n) {
  return at::arange(n).lt((n + 1) / 2);
}

at::Tensor random_half(int64_t n) {
  at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(n));
  auto mask = at::zeros({n}, at::kBool);
  return mask.index_fill_(0, at::randperm(n, generator).narrow(0, 0, (n + 1) / 2), true);
}

/// The convolutions of resnet18 in the layout of training.
TensorDict convolutions() {
  const auto model = models::make_model("resnet18", {.classes = 1000, .height = 224, .width = 224});
  TensorDict tensors;
  for (const auto& item : model.weights.params) {
    if (item.value().dim() != 4) continue;
    tensors.insert(item.key(), item.value().detach().contiguous(at::MemoryFormat::ChannelsLast));
  }
  return tensors;
}

/// One case's data: what is packed, and the same entries for its rivals.
struct Work {
  TensorDict tensors, unpacked;
  Compaction plan;
  at::Tensor buffer, other;
  std::vector<at::Tensor> row_index, channel_index;
  int64_t dense = 0;  // entries of the tensors
};

Work prepare(const Case& tested) {
  Work work;
  work.tensors = convolutions();
  Supports supports;
  for (const auto& item : work.tensors) {
    const at::Tensor& tensor = item.value();
    const Kept kept = tested.kept(tensor.size(0), tensor.size(1));
    Support support{.rows = kept.rows};
    if (kept.channels.defined()) support.columns = kept.channels.view({-1, 1, 1}).expand(tensor.sizes().slice(1));
    supports.insert(item.key(), support);
    work.row_index.push_back(kept.rows.defined() ? kept.rows.nonzero().view({-1}) : at::Tensor());
    work.channel_index.push_back(kept.channels.defined() ? kept.channels.nonzero().view({-1}) : at::Tensor());
    work.unpacked.insert(item.key(), at::zeros_like(tensor));
    work.dense += tensor.numel();
  }
  work.plan = Compaction(work.tensors, supports);
  work.buffer = at::ones({work.plan.numel()});
  work.other = at::ones({work.plan.numel()});
  return work;
}

void select(Work& work) {
  int64_t offset = 0;
  for (size_t t = 0; t < work.tensors.size(); ++t) {
    at::Tensor kept = work.tensors[t].value();
    if (work.row_index[t].defined()) kept = kept.index_select(0, work.row_index[t]);
    if (work.channel_index[t].defined()) kept = kept.index_select(1, work.channel_index[t]);
    work.other.narrow(0, offset, kept.numel()).view_as(kept).copy_(kept);
    offset += kept.numel();
  }
}

/// Other load on the machine only ever adds.
double fastest(const std::vector<double>& seconds) {
  return *std::min_element(seconds.begin(), seconds.end());
}

double seconds_of(const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// With nothing of the data in the caches, as after local steps.
double cold_seconds_of(const std::function<void()>& body, at::Tensor& other_data) {
  other_data.add_(1);
  return seconds_of(body);
}

/// Turn by turn, so that other load on the machine meets all alike. Of unpacking the rival also writes the zeros.
void measure(const Case& tested) {
  Work work = prepare(tested);
  const size_t bytes = work.buffer.nbytes();
  at::Tensor other_data = at::zeros({kCacheBytes / 4}), zeros = at::ones({work.dense - work.buffer.numel()});
  const auto copy = [&] { std::memcpy(work.other.data_ptr(), work.buffer.data_ptr(), bytes); };
  const auto copy_and_clear = [&] {
    copy();
    std::memset(zeros.data_ptr(), 0, zeros.nbytes());
  };
  std::vector<double> copied, cleared, packed, unpacked, selected;
  for (int round = 0; round < kRounds; ++round) {
    copied.push_back(cold_seconds_of(copy, other_data));
    packed.push_back(cold_seconds_of([&] { work.plan.pack(work.tensors, work.buffer); }, other_data));
    selected.push_back(cold_seconds_of([&] { select(work); }, other_data));
    cleared.push_back(cold_seconds_of(copy_and_clear, other_data));
    unpacked.push_back(cold_seconds_of([&] { work.plan.unpack(work.buffer, work.unpacked); }, other_data));
  }
  const auto milliseconds = [](const std::vector<double>& seconds) { return 1e3 * fastest(seconds); };
  fmt::print("{:<29} {:5.1f} {:8.2f} {:8.2f} {:8.2f} {:8.2f} {:8.2f} {:8.2f} {:9.2f} {:8.2f}\n", tested.name,
             static_cast<double>(bytes) / 1e6, milliseconds(copied), milliseconds(packed), milliseconds(selected),
             fastest(copied) / fastest(packed), fastest(selected) / fastest(packed), milliseconds(cleared),
             milliseconds(unpacked), fastest(cleared) / fastest(unpacked));
}

}  // namespace
}  // namespace prunex::sparsity

int main() {
  using namespace prunex::sparsity;
  at::set_num_threads(1);
  fmt::print("milliseconds, fastest of {} rounds; ratios above 1: faster than the rival\n", kRounds);
  fmt::print("{:<29} {:>5} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>8}\n", "kept", "MB", "memcpy", "pack", "select",
             "/memcpy", "/select", "+memset", "unpack", "/memset");
  const std::vector<Case> cases = {{"everything", [](int64_t, int64_t) { return Kept{}; }},
                                   {"half of the filters, random",
                                    [](int64_t rows, int64_t) {
                                      return Kept{random_half(rows), {}};
                                    }},
                                   {"first half of both",
                                    [](int64_t rows, int64_t n) {
                                      return Kept{first_half(rows), first_half(n)};
                                    }},
                                   {"half of the channels, random",
                                    [](int64_t, int64_t n) {
                                      return Kept{{}, random_half(n)};
                                    }},
                                   {"half of both, random", [](int64_t rows, int64_t n) {
                                      return Kept{random_half(rows), random_half(n)};
                                    }}};
  for (const auto& tested : cases) measure(tested);
}
