// Work on a device that is recorded once and launched as a whole: a CUDA graph. CMake chooses what makes them:
// cuda/cuda_graph.cpp, or without CUDA cuda/no_cuda.cpp.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>

namespace prunex::train {

class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;

  /// Does the work where it will be recorded: libraries set themselves up at their first calls.
  virtual void warm_up(const std::function<void()>& work) = 0;
  /// Records the work without doing it. It reads and writes the memory that it was recorded with; what it allocates
  /// stays the graph's. Throws what the device says of work that waits for a result.
  virtual void capture(const std::function<void()>& work) = 0;
  /// Does what was recorded.
  virtual void replay() = 0;
};

using GraphMaker = std::function<std::unique_ptr<DeviceGraph>(const c10::Device&)>;

/// Null for a device that has no graphs.
std::unique_ptr<DeviceGraph> make_device_graph(const c10::Device& device);

}  // namespace prunex::train
