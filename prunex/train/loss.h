// What a step of training minimises.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "prunex/data/loader.h"
#include "prunex/train/teacher.h"

namespace prunex::train {

/// What of the loss is not plain cross-entropy.
struct LossOptions {
  double label_smoothing = 0;  ///< torch.nn.functional.cross_entropy's
  at::Tensor mix = {};         ///< a Mix's numbers, where the batch is; undefined: batches stay as they are
  std::shared_ptr<const Teacher> teacher = {};  ///< where the batch is; null: none
};

/// Logits in their type and fp32 at least.
at::Tensor in_fp32(const at::Tensor& logits);

/// What the step shows the network: the batch's images, mixed if they are to be.
at::Tensor shown_images(const data::Batch& batch, const LossOptions& options);

/// Mean over the batch, of logits that the network has for `images`, in their type and fp32 at least: cross-entropy,
/// and with a teacher
///   (1 - share) cross-entropy + share T^2 KL(softmax(teacher's logits / T) || softmax(logits / T)).
at::Tensor training_loss(const at::Tensor& logits, const at::Tensor& images, const data::Batch& batch,
                         const LossOptions& options);

}  // namespace prunex::train
