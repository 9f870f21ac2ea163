// A trained network whose answers another one learns.
#pragma once

#include <memory>

#include "prunex/comm/communicator.h"
#include "prunex/data/dataset.h"
#include "prunex/program/program.h"
#include "prunex/train/device.h"
#include "prunex/train/options.h"

namespace prunex::train {

struct Checkpoint;

/// `teacher`: none, or the network itself as it was before its first cut, from then on; else FILE.pt2.
inline constexpr const char* kNoTeacher = "none";
inline constexpr const char* kWholeTeacher = "whole";

/// G. Hinton, O. Vinyals and J. Dean, "Distilling the Knowledge in a Neural Network" (2015).
struct Teacher {
  program::Model model;         ///< nothing of it requires gradients
  double share = 0.5;           ///< of the loss; the labels have the rest
  double temperature = 4;       ///< what logits are divided by
  at::Tensor scale{}, shift{};  ///< [C, 1, 1]: what makes its images of the student's; undefined if they are the same
};

/// Of copies of the weights, where they are.
std::shared_ptr<const Teacher> make_teacher(const TrainOptions& options, program::Model model);

/// The file's, for a network that has that `graph`; null if `teacher` is none. Sees images as its file says that it is
/// used to. Throws std::invalid_argument for other images, another number of logits, the same classes in another order,
/// or a file that is no program.
std::shared_ptr<const Teacher> read_teacher(const TrainOptions& options, const data::Dataset& training,
                                            const program::Graph& graph);
/// What the teacher makes of such images. No gradients.
at::Tensor logits_of(const Teacher& teacher, const at::Tensor& images);
std::shared_ptr<const Teacher> on_device(std::shared_ptr<const Teacher> teacher, const c10::Device& device);

// The file may be another one on another rank, or when a run goes on; `whole` is saved. Teachers may be null.

/// Throws std::invalid_argument if a rank has another one than the first of `ranks`. Collective.
void expect_same_teacher(const Teacher* teacher, comm::Communicator& ranks);
void save_teacher(const TrainOptions& options, const Teacher* teacher, Checkpoint& checkpoint);
/// What save_teacher() left: of the program that the run began with if it is `whole`, else `teacher`. Throws
/// std::invalid_argument if that is not the one that was saved.
std::shared_ptr<const Teacher> teacher_after(const Checkpoint& checkpoint, const TrainOptions& options,
                                             std::shared_ptr<const Teacher> teacher, const program::Model& whole);

}  // namespace prunex::train
