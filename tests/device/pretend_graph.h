// Streams of the pretend device, and graphs that its kernels are recorded in.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "prunex/train/device_graph.h"

namespace prunex::tests {

/// Kernels of a stream that are recorded as a CUDA graph is: with the memory they are given, without being run. While
/// one is, the host may not wait for the device, nor bring anything there. What plays a CUDA graph.
class PretendGraph {
 public:
  explicit PretendGraph(const c10::Stream& stream);
  ~PretendGraph();
  PretendGraph(const PretendGraph&) = delete;
  PretendGraph& operator=(const PretendGraph&) = delete;

  void begin();
  void end();
  void replay() const;
  /// Of the kernels, in their order.
  const std::vector<std::string>& names() const { return names_; }

  /// For kernels: its name, and what does it, result included.
  void add(const std::string& name, std::function<void()> kernel);

 private:
  const c10::Stream stream_;
  std::vector<std::string> names_;
  std::vector<std::function<void()>> kernels_;
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
/// Begins a kernel: the graph that it is to be added to, or null if it runs.
PretendGraph* graph_of_kernel(const std::string& name);
/// What no graph can hold.
void refuse_in_graph(const PretendGraph* graph, const std::string& what);

}  // namespace prunex::tests
