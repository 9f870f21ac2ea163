#include "prunex/train/teacher.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <bit>
#include <stdexcept>
#include <string>
#include <utility>

#include "prunex/program/pt2.h"
#include "prunex/train/checkpoint.h"
#include "prunex/train/network.h"
#include "prunex/train/outliving.h"
#include "prunex/train/over_ranks.h"

namespace prunex::train {
namespace {

constexpr const char* kTeacher = "teacher";  // among a rank's tensors

int64_t logits_of(const program::Graph& graph) {
  return graph.values[graph.outputs.front()].shape.back().factor;
}

}  // namespace

std::shared_ptr<Teacher> load_teacher(const TrainOptions& options, const data::Dataset& training,
                                      const program::Graph& graph) {
  if (options.teacher.empty()) return nullptr;
  const std::string source = "`teacher` " + options.teacher;
  program::Model model = program::read_pt2(options.teacher, options.max_model_size << 20);
  check_fits(model.program.graph(), training, source);
  if (const int64_t got = logits_of(model.program.graph()), wanted = logits_of(graph); got != wanted) {
    throw std::invalid_argument(
        fmt::format("{}: it has {} logits, `model` {} has {}", source, got, options.model, wanted));
  }
  for (auto& theta : model.weights.params) theta.value() = in_fast_layout(theta.value());
  const auto checksum = std::bit_cast<int64_t>(hash_of(model.weights.params, model.weights.buffers));
  return std::make_shared<Teacher>(
      Teacher{std::move(model), options.teacher_share, options.teacher_temperature, checksum});
}

void expect_same_teacher(const Teacher* teacher, comm::Communicator& ranks) {
  if (teacher == nullptr) return;
  const auto other = first_other(teacher->checksum, ranks);
  if (!other) return;
  throw std::invalid_argument(fmt::format(
      "`teacher`: rank {} has another network there than rank 0: wanted the same file on all machines", *other));
}

void remember_teacher(const Teacher* teacher, Checkpoint& checkpoint) {
  if (teacher != nullptr) checkpoint.rank.insert(kTeacher, at::tensor({teacher->checksum}, at::kLong));
}

void expect_remembered_teacher(const Teacher* teacher, const Checkpoint& checkpoint) {
  const at::Tensor* before = checkpoint.rank.find(kTeacher);
  if (teacher == nullptr || before == nullptr || before->item<int64_t>() == teacher->checksum) return;
  throw std::invalid_argument("`teacher`: the network is not the one with which the run began: wanted the same file");
}

}  // namespace prunex::train
