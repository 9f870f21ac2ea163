#include "prunex/train/local_step.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#ifdef __x86_64__
#include <cpuid.h>
#endif

#include <cmath>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <vector>

namespace prunex::train {
namespace {

/// Autocast of a device to bf16 while it lives. Leaving clears the cache of cast weights: they are about to change.
class Bf16Autocast {
 public:
  explicit Bf16Autocast(at::DeviceType device)
      : device_(device),
        enabled_(at::autocast::is_autocast_enabled(device)),
        type_(at::autocast::get_autocast_dtype(device)) {
    at::autocast::increment_nesting();
    at::autocast::set_autocast_dtype(device_, at::kBFloat16);
    at::autocast::set_autocast_enabled(device_, true);
  }
  ~Bf16Autocast() {
    at::autocast::set_autocast_enabled(device_, enabled_);
    at::autocast::set_autocast_dtype(device_, type_);
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  }
  Bf16Autocast(const Bf16Autocast&) = delete;
  Bf16Autocast& operator=(const Bf16Autocast&) = delete;

 private:
  at::DeviceType device_;
  bool enabled_;
  at::ScalarType type_;
};

/// Steps that begin or end: PyTorch has one switch of TF32 for the whole process, which is on while any rank wants it.
void count_tf32_steps(int more) {
  static std::mutex mutex;
  static int steps = 0;
  const std::lock_guard lock(mutex);
  steps += more;
  at::globalContext().setAllowTF32CuDNN(steps > 0);
  at::globalContext().setAllowTF32CuBLAS(steps > 0);
}

/// TF32 on GPUs while it lives.
class Tf32 {
 public:
  explicit Tf32(bool wanted) : wanted_(wanted) {
    if (wanted_) count_tf32_steps(1);
  }
  ~Tf32() {
    if (wanted_) count_tf32_steps(-1);
  }
  Tf32(const Tf32&) = delete;
  Tf32& operator=(const Tf32&) = delete;

 private:
  const bool wanted_;
};

/// In fp32 at least.
at::Tensor loss_of(const program::Program& program, Replica& replica, const data::Batch& batch, Arithmetic arithmetic,
                   const LossOptions& loss) {
  std::optional<Bf16Autocast> autocast;
  if (arithmetic == Arithmetic::kBf16) autocast.emplace(batch.images.device().type());
  const at::Tensor images = shown_images(batch, loss);
  return training_loss(program.run({images}, replica.weights, program::Mode::kTrain).front(), images, batch, loss);
}

}  // namespace

void seed_dropout(const c10::Device& device, uint64_t seed, int rank, int64_t step) {
  const uint64_t stream = seed * 0x9e3779b97f4a7c15ULL + static_cast<uint64_t>(rank) * 0xbf58476d1ce4e5b9ULL;
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(stream + static_cast<uint64_t>(step));
}

const char* name_of(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::kBf16 ? "bf16" : arithmetic == Arithmetic::kTf32 ? "tf32" : "fp32";
}

std::optional<Arithmetic> arithmetic_named(const std::string& name) {
  for (const Arithmetic one : {Arithmetic::kFp32, Arithmetic::kTf32, Arithmetic::kBf16}) {
    if (name == name_of(one)) return one;
  }
  return std::nullopt;
}

void compute_reproducibly() {
  count_tf32_steps(0);
  at::globalContext().setDeterministicCuDNN(true);
}

at::Tensor compute_gradients(const program::Program& program, Replica& replica, const data::Batch& batch,
                             Arithmetic arithmetic, const LossOptions& loss_options) {
  const Tf32 products(arithmetic == Arithmetic::kTf32);
  const at::Tensor loss = loss_of(program, replica, batch, arithmetic, loss_options);
  loss.backward();
  return loss.detach();
}

at::Tensor take_gradients(const program::Program& program, Replica& replica, const data::Batch& batch,
                          Arithmetic arithmetic, const LossOptions& loss_options) {
  const Tf32 products(arithmetic == Arithmetic::kTf32);
  std::vector<at::Tensor> trained;
  for (const auto& theta : replica.weights.params) {
    if (theta.value().requires_grad()) trained.push_back(theta.value());
  }
  const at::Tensor loss = loss_of(program, replica, batch, arithmetic, loss_options);
  const auto gradients = torch::autograd::grad({loss}, trained, {}, std::nullopt, false, /*allow_unused=*/true);
  for (size_t i = 0; i < trained.size(); ++i) trained[i].mutable_grad() = gradients[i];
  return loss.detach();
}

void LossSum::check(double sum, int64_t step, const std::string& where) const {
  if (std::isfinite(sum)) return;
  const Phase& phase = length_->phase_of(step);
  throw std::runtime_error(fmt::format("the training loss is {} {}: try a lower {} (got {})", sum, where,
                                       phase.rate_option, phase.learning_rate));
}

void LossSum::add(const at::Tensor& loss, int64_t step) {
  if (loss.is_cpu()) check(loss.item<double>(), step, fmt::format("at step {}", step));
  if (!sum_.defined()) {
    sum_ = at::zeros({}, loss.options().dtype(at::kDouble));
    first_ = step;
  }
  sum_ = sum_ + loss;  // copies of a sum keep theirs
  last_ = step;
}

double LossSum::take() {
  if (!sum_.defined()) return 0;
  const auto sum = sum_.item<double>();
  sum_.reset();
  check(sum, last_, fmt::format("in steps {} to {}", first_, last_));
  return sum;
}

bool is_faster_in_bf16() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512bf16") == 0) return false;
  if (__builtin_cpu_is("intel") == 0) return true;
  constexpr unsigned int kAmxBf16 = 1U << 22;  // in edx of leaf 7
  unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kAmxBf16) != 0;
#else
  return false;
#endif
}

}  // namespace prunex::train
