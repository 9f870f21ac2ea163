#include "prunex/train/local_step.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include <mutex>

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

/// In fp32 at least.
at::Tensor loss_of(const program::Program& program, Replica& replica, const data::Batch& batch) {
  const at::Tensor logits = program.run({batch.images}, replica.weights, program::Mode::kTrain).front();
  const bool reduced = at::isReducedFloatingType(logits.scalar_type());
  return at::cross_entropy_loss(reduced ? logits.to(at::kFloat) : logits, batch.labels);
}

at::Tensor loss_in_bf16(const program::Program& program, Replica& replica, const data::Batch& batch) {
  const Bf16Autocast autocast(batch.images.device().type());
  return loss_of(program, replica, batch);
}

}  // namespace

void seed_dropout(const c10::Device& device, uint64_t seed, int rank, int64_t step) {
  const uint64_t stream = seed * 0x9e3779b97f4a7c15ULL + static_cast<uint64_t>(rank) * 0xbf58476d1ce4e5b9ULL;
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(stream + static_cast<uint64_t>(step));
}

double compute_gradients(const program::Program& program, Replica& replica, const data::Batch& batch, bool bf16) {
  const at::Tensor loss = bf16 ? loss_in_bf16(program, replica, batch) : loss_of(program, replica, batch);
  loss.backward();
  return loss.item<double>();
}

bool has_bf16_arithmetic() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

}  // namespace prunex::train
