// A rank's local steps: kernel by kernel, or recorded and replayed where the device has graphs.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "prunex/strategies/strategy.h"
#include "prunex/train/local_step.h"
#include "prunex/train/mixing.h"
#include "prunex/train/network.h"
#include "prunex/train/optimizer.h"
#include "prunex/train/steps/batch_feed.h"
#include "prunex/train/steps/device_graph.h"

namespace prunex::train {

/// A step is recorded when it is like the two before it: the same tensors in the same memory, the same settings. What
/// changes without that (images, the learning rate, anchors, rho1) is read where it lies. So a graph lasts until the
/// freeze, a cut or another phase.
class LocalSteps {
 public:
  /// Borrows network and feed. `make_graph` null, or making none: kernel by kernel.
  LocalSteps(TrainedNetwork& network, BatchFeed& feed, Arithmetic arithmetic, GraphMaker make_graph,
             LossOptions loss = {});

  /// How the batches of the next steps are mixed, from the first step on if ever.
  void set_mix(const Mix& mix);

  /// From the next step on, before the first.
  void set_arithmetic(Arithmetic arithmetic) { arithmetic_ = arithmetic; }

  /// From the next step on; null: none.
  void set_teacher(std::shared_ptr<const Teacher> teacher) { loss_options_.teacher = std::move(teacher); }

  /// Whether step() launches forward, backward and update as one, once they were recorded.
  bool has_graphs() const { return make_graph_ != nullptr; }

  /// Of the feed's batch, in the parameters; for who does something with them before optimizer_step(). Returns the
  /// loss.
  at::Tensor gradients();
  /// gradients() and optimizer_step().
  at::Tensor step(const strategies::LocalTerms& terms, const OptimizerOptions& options);

  /// Graphs that were recorded.
  int64_t captures() const { return captures_; }

 private:
  using Identity = std::vector<int64_t>;

  Identity identity_of(const std::vector<const TensorDict*>& more) const;
  void run(Identity identity, const std::function<void()>& work);
  void set_numbers(const strategies::LocalTerms& terms, const OptimizerOptions& options);

  TrainedNetwork& network_;
  BatchFeed& feed_;
  Arithmetic arithmetic_;
  const GraphMaker make_graph_;
  LossOptions loss_options_;

  std::unique_ptr<DeviceGraph> graph_;
  Identity identity_;  // of the last step
  int64_t alike_ = 0;  // steps before the graph was recorded
  int64_t captures_ = 0;
  at::Tensor loss_;                    // of the last step; the graph's own, once there is one
  std::vector<at::Tensor> gradients_;  // that the graph writes, where the update is not in it
  StepNumbers numbers_;
  std::vector<double> rho1_;  // what numbers_ hold
};

/// Until the device has done what it was given; at once on the CPU.
void wait_for(const c10::Device& device);

}  // namespace prunex::train
