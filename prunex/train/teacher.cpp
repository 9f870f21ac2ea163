#include "prunex/train/teacher.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "prunex/program/pt2.h"
#include "prunex/text/read_file.h"
#include "prunex/train/device.h"
#include "prunex/train/images/images.h"
#include "prunex/train/loss.h"
#include "prunex/train/network.h"
#include "prunex/train/remarks.h"
#include "prunex/train/run/checkpoint.h"
#include "prunex/train/tensor_hash.h"

namespace prunex::train {
namespace {

const std::string kWeights = "teacher/";  // and the name of a weight, among a node's tensors

int64_t width_of_logits(const program::Graph& graph) {
  return graph.values[graph.outputs.front()].shape.back().factor;
}

Teacher teacher_of(const TrainOptions& options, program::Model model) {
  for (auto& theta : model.weights.params) theta.value() = in_fast_layout(theta.value()).clone();
  for (auto& buffer : model.weights.buffers) buffer.value() = buffer.value().clone();
  return {std::move(model), options.teacher_share, options.teacher_temperature};
}

/// Names may differ for the same classes; the same names in another order cannot be meant.
void expect_same_order(const std::vector<std::string>& classes, const data::Dataset& training,
                       const std::string& source) {
  const auto& own = training.class_names;
  if (classes == own || !std::is_permutation(classes.begin(), classes.end(), own.begin(), own.end())) return;
  throw std::invalid_argument(fmt::format("{}: its classes are {}, those of {} are {}: wanted the same order", source,
                                          some_of(classes), training.name, some_of(own)));
}

/// What makes images that are normalised by the one of images that are normalised by the other: [C, 1, 1] each.
std::pair<at::Tensor, at::Tensor> between(const data::Description& one, const data::Description& other) {
  const auto of_channels = [](const std::vector<double>& values) {
    return at::tensor(values, at::kDouble).view({-1, 1, 1});
  };
  const at::Tensor scale = of_channels(one.std) / of_channels(other.std);
  const at::Tensor shift = (of_channels(one.mean) - of_channels(other.mean)) / of_channels(other.std);
  return {scale.to(at::kFloat), shift.to(at::kFloat)};
}

int64_t checksum_of(const Teacher& teacher) {
  const uint64_t weights = hash_of(teacher.model.weights.params, teacher.model.weights.buffers);
  return std::bit_cast<int64_t>(weights ^ program::checksum(teacher.model.program.graph()));
}

}  // namespace

std::shared_ptr<const Teacher> make_teacher(const TrainOptions& options, program::Model model) {
  return std::make_shared<Teacher>(teacher_of(options, std::move(model)));
}

std::shared_ptr<const Teacher> read_teacher(const TrainOptions& options, const data::Dataset& training,
                                            const program::Graph& graph) {
  if (options.teacher == kNoTeacher || options.teacher == kWholeTeacher) return nullptr;
  const std::string source = "`teacher` " + options.teacher;
  text::expect_there("`teacher`", options.teacher);
  program::Model model = program::read_pt2(options.teacher, options.max_model_size << 20);
  check_fits(model.program.graph(), training, source);
  model.program.graph().expect_batch(source + ": `batch_size`", options.batch_size);
  const int64_t got = width_of_logits(model.program.graph()), wanted = width_of_logits(graph);
  if (got != wanted) {
    throw std::invalid_argument(
        fmt::format("{}: it has {} logits, `model` {} has {}", source, got, options.model, wanted));
  }
  Teacher teacher = teacher_of(options, std::move(model));
  if (const auto said = carried_description(options.teacher, "", options.max_model_size << 20)) {
    expect_same_order(said->description.classes, training, source);
    const data::Description own = data::describe(training);
    if (said->description.mean.size() != own.mean.size()) {
      throw std::invalid_argument(fmt::format("{}: it is used to images of {} channels, {} has {}", source,
                                              said->description.mean.size(), training.name, own.mean.size()));
    }
    if (data::normalise_differently(said->description, own)) {
      std::tie(teacher.scale, teacher.shift) = between(own, said->description);
    }
  }
  return std::make_shared<Teacher>(std::move(teacher));
}

at::Tensor logits_of(const Teacher& teacher, const at::Tensor& images) {
  const at::NoGradGuard no_grad;
  const auto& [program, weights] = teacher.model;
  const at::Tensor own = teacher.scale.defined() ? images * teacher.scale + teacher.shift : images;
  return in_fp32(program.run({own}, weights, program::Mode::kEval).front());
}

std::shared_ptr<const Teacher> on_device(std::shared_ptr<const Teacher> teacher, const c10::Device& device) {
  if (!teacher || device.is_cpu()) return teacher;
  Teacher moved{on_device(teacher->model, device), teacher->share, teacher->temperature};
  if (teacher->scale.defined()) {
    moved.scale = teacher->scale.to(device);
    moved.shift = teacher->shift.to(device);
  }
  return std::make_shared<Teacher>(std::move(moved));
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
