#include "prunex/train/loss.h"

#include <ATen/ATen.h>

#include "prunex/train/mixing.h"

namespace prunex::train {
namespace {

at::Tensor log_shares(const at::Tensor& logits, double temperature) {
  return (logits / temperature).log_softmax(1);
}

}  // namespace

at::Tensor in_fp32(const at::Tensor& logits) {
  return at::isReducedFloatingType(logits.scalar_type()) ? logits.to(at::kFloat) : logits;
}

at::Tensor shown_images(const data::Batch& batch, const LossOptions& options) {
  return options.mix.defined() ? mixed(batch.images, options.mix) : batch.images;
}

at::Tensor training_loss(const at::Tensor& network_logits, const at::Tensor& images, const data::Batch& batch,
                         const LossOptions& options) {
  const at::Tensor logits = in_fp32(network_logits);
  at::Tensor labels = batch.labels;
  if (options.mix.defined()) labels = mixed_labels(labels, options.mix, logits.size(1), logits.scalar_type());
  const at::Tensor by_labels =
      at::cross_entropy_loss(logits, labels, {}, at::Reduction::Mean, -100, options.label_smoothing);
  if (!options.teacher) return by_labels;
  const Teacher& teacher = *options.teacher;
  const at::Tensor by_teacher =
      at::kl_div(log_shares(logits, teacher.temperature), log_shares(logits_of(teacher, images), teacher.temperature),
                 at::Reduction::Sum, /*log_target=*/true);
  const double scale = teacher.share * teacher.temperature * teacher.temperature / static_cast<double>(logits.size(0));
  return by_labels * (1 - teacher.share) + by_teacher * scale;
}

}  // namespace prunex::train
