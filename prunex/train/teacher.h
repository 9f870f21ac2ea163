// A trained network whose answers another one learns.
#pragma once

#include <cstdint>
#include <memory>

#include "prunex/comm/communicator.h"
#include "prunex/data/dataset.h"
#include "prunex/program/program.h"
#include "prunex/train/options.h"

namespace prunex::train {

struct Checkpoint;

/// G. Hinton, O. Vinyals and J. Dean, "Distilling the Knowledge in a Neural Network" (2015).
struct Teacher {
  program::Model model;    ///< nothing of it requires gradients
  double share = 0.5;      ///< of the loss; the labels have the rest
  double temperature = 4;  ///< what logits are divided by
  int64_t checksum = 0;    ///< of the weights
};

/// What `teacher` names, for a network that has that `graph`; null if it names none. Throws std::invalid_argument for
/// other images, another number of logits, or a file that is no program.
std::shared_ptr<Teacher> load_teacher(const TrainOptions& options, const data::Dataset& training,
                                      const program::Graph& graph);

// Its file may be another one on another rank, or when a run goes on. Null: there is none.

/// Throws std::invalid_argument if a rank has another one than the first of `ranks`. Collective.
void expect_same_teacher(const Teacher* teacher, comm::Communicator& ranks);
void remember_teacher(const Teacher* teacher, Checkpoint& checkpoint);
/// Throws std::invalid_argument if this is not the one of remember_teacher().
void expect_remembered_teacher(const Teacher* teacher, const Checkpoint& checkpoint);

}  // namespace prunex::train
