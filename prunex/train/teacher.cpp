#include "prunex/train/teacher.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <bit>
#include <stdexcept>
#include <string>
#include <utility>

#include "prunex/program/pt2.h"
#include "prunex/train/device.h"
#include "prunex/train/network.h"
#include "prunex/train/over_ranks.h"
#include "prunex/train/run/checkpoint.h"

namespace prunex::train {
namespace {

const std::string kWeights = "teacher/";  // and the name of a weight, among a node's tensors

int64_t logits_of(const program::Graph& graph) {
  return graph.values[graph.outputs.front()].shape.back().factor;
}

int64_t checksum_of(const Teacher& teacher) {
  const uint64_t weights = hash_of(teacher.model.weights.params, teacher.model.weights.buffers);
  return std::bit_cast<int64_t>(weights ^ program::checksum(teacher.model.program.graph()));
}

}  // namespace

std::shared_ptr<const Teacher> make_teacher(const TrainOptions& options, program::Model model) {
  for (auto& theta : model.weights.params) theta.value() = in_fast_layout(theta.value()).clone();
  for (auto& buffer : model.weights.buffers) buffer.value() = buffer.value().clone();
  return std::make_shared<Teacher>(Teacher{std::move(model), options.teacher_share, options.teacher_temperature});
}

std::shared_ptr<const Teacher> read_teacher(const TrainOptions& options, const data::Dataset& training,
                                            const program::Graph& graph) {
  if (options.teacher == kNoTeacher || options.teacher == kWholeTeacher) return nullptr;
  const std::string source = "`teacher` " + options.teacher;
  program::Model model = program::read_pt2(options.teacher, options.max_model_size << 20);
  check_fits(model.program.graph(), training, source);
  model.program.graph().expect_batch(source + ": `batch_size`", options.batch_size);
  if (const int64_t got = logits_of(model.program.graph()), wanted = logits_of(graph); got != wanted) {
    throw std::invalid_argument(
        fmt::format("{}: it has {} logits, `model` {} has {}", source, got, options.model, wanted));
  }
  return make_teacher(options, std::move(model));
}

std::shared_ptr<const Teacher> on_device(std::shared_ptr<const Teacher> teacher, const c10::Device& device) {
  if (!teacher || device.is_cpu()) return teacher;
  return std::make_shared<Teacher>(Teacher{on_device(teacher->model, device), teacher->share, teacher->temperature});
}

void expect_same_teacher(const Teacher* teacher, comm::Communicator& ranks) {
  if (teacher == nullptr) return;
  const auto other = first_other(checksum_of(*teacher), ranks);
  if (!other) return;
  throw std::invalid_argument(fmt::format(
      "`teacher`: rank {} has another network there than rank 0: wanted the same file on all machines", *other));
}

void save_teacher(const TrainOptions& options, const Teacher* teacher, Checkpoint& checkpoint) {
  if (teacher == nullptr) return;
  if (options.teacher != kWholeTeacher) {
    checkpoint.node.insert(kTeacherChecksum, at::tensor({checksum_of(*teacher)}, at::kLong));
    return;
  }
  for (const TensorDict* tensors : {&teacher->model.weights.params, &teacher->model.weights.buffers}) {
    for (const auto& item : *tensors) checkpoint.node.insert(kWeights + item.key(), item.value());
  }
}

std::shared_ptr<const Teacher> teacher_after(const Checkpoint& checkpoint, const TrainOptions& options,
                                             std::shared_ptr<const Teacher> teacher, const program::Model& whole) {
  if (options.teacher != kWholeTeacher) {
    const at::Tensor* before = checksum_in(checkpoint, kTeacherChecksum);
    if (!teacher || before == nullptr || before->item<int64_t>() == checksum_of(*teacher)) return teacher;
    throw std::invalid_argument("`teacher`: the network is not the one with which the run began: wanted the same file");
  }
  program::Model model = whole;
  for (TensorDict* tensors : {&model.weights.params, &model.weights.buffers}) {
    for (auto& item : *tensors) {
      const at::Tensor* saved = checkpoint.node.find(kWeights + item.key());
      if (saved == nullptr) return nullptr;  // nothing had been cut
      item.value() = saved->to(item.value().device());
    }
  }
  return make_teacher(options, std::move(model));
}

}  // namespace prunex::train
