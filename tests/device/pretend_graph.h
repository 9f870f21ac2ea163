// Streams of the pretend device, and graphs that its kernels are recorded in.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "prunex/train/steps/device_graph.h"

namespace prunex::tests {

/// What takes a stream's kernels instead of running them at once.
class Recorder {
 public:
  virtual ~Recorder() = default;
  /// A kernel's name, and what does it, result included.
  virtual void add(const std::string& name, std::function<void()> kernel) = 0;
  /// The host wants to know what the kernels leave.
  virtual void wait(const std::string& what) = 0;
  /// Memory of the host takes part in what comes next.
  virtual void meet_host(const std::string& what) = 0;
  /// Whether results have no values before their kernels run.
  virtual bool leaves_results_open() const { return false; }
};

/// Kernels of a stream that are recorded as a CUDA graph is: with the memory they are given, without being run. While
/// one is, the host may not wait for the device, nor bring anything there. What plays a CUDA graph.
class PretendGraph final : public Recorder {
 public:
  explicit PretendGraph(const c10::Stream& stream);
  ~PretendGraph() override;
  PretendGraph(const PretendGraph&) = delete;
  PretendGraph& operator=(const PretendGraph&) = delete;

  void begin();
  void end();
  void replay() const;
  /// Of the kernels, in their order.
  const std::vector<std::string>& names() const { return names_; }

  void add(const std::string& name, std::function<void()> kernel) override;
  void wait(const std::string& what) override;
  void meet_host(const std::string& what) override { wait(what); }

 private:
  const c10::Stream stream_;
  std::vector<std::string> names_;
  std::shared_ptr<std::vector<std::function<void()>>> kernels_ = std::make_shared<std::vector<std::function<void()>>>();
  at::Tensor random_;  // the generator's state before
};

/// The same as training uses it; counts what was recorded and replayed in all of them.
std::unique_ptr<train::DeviceGraph> make_pretend_graph(const c10::Device& device);
struct GraphCounts {
  int64_t captures = 0, replays = 0;
};
GraphCounts graph_counts();
/// Of the graph that was recorded last.
std::vector<std::string> recorded_kernels();

/// A stream that nobody else has.
c10::Stream new_pretend_stream();

/// The kernels that `work` runs, in their order, by name. For one thread that computes.
std::vector<std::string> kernels_of(const std::function<void()>& work);

// For the backend.

c10::Stream current_pretend_stream();
c10::Stream exchange_pretend_stream(c10::Stream stream);
/// From now on the calling thread's kernels have sums in the order of one thread.
void compute_alone();
/// Begins a kernel: where it is to be added, or null if it runs.
Recorder* recorder_of_kernel(const std::string& name);

}  // namespace prunex::tests
