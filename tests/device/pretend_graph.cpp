#include "tests/device/pretend_graph.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "tests/device/late_streams.h"
#include "tests/device/pretend_device.h"

namespace prunex::tests {
namespace {

std::atomic<c10::StreamId> last_stream = 0;
thread_local c10::StreamId current_stream = ++last_stream;  // each rank has a default one, as each process on a GPU
std::atomic<int64_t> captures = 0, replays = 0;

std::mutex recording;
std::map<c10::StreamId, PretendGraph*> recorded;  // graphs that are being recorded
std::vector<std::string>* kernel_log = nullptr;
std::vector<std::string> last_names;

class TrainingGraph final : public train::DeviceGraph {
 public:
  void warm_up(const std::function<void()>& work) override { on_own_stream(work); }

  void capture(const std::function<void()>& work) override {
    on_own_stream([&] {
      graph_.begin();
      try {
        work();
      } catch (...) {
        graph_.end();
        throw;
      }
      graph_.end();
    });
    ++captures;
    const std::lock_guard lock(recording);
    last_names = graph_.names();
  }

  void replay() override {
    graph_.replay();
    ++replays;
  }

 private:
  /// As CUDA's: after what the current stream holds, which goes on after it.
  void on_own_stream(const std::function<void()>& work) const {
    const c10::Stream current = current_pretend_stream();
    c10::Event before(stream_.device_type()), after(stream_.device_type());
    before.record(current);
    before.block(stream_);
    const c10::StreamGuard guard(stream_);
    work();
    after.record(stream_);
    after.block(current);
  }

  const c10::Stream stream_ = new_pretend_stream();
  PretendGraph graph_{stream_};
};

}  // namespace

std::unique_ptr<train::DeviceGraph> make_pretend_graph(const c10::Device&) {
  return std::make_unique<TrainingGraph>();
}

GraphCounts graph_counts() {
  return {captures, replays};
}

std::vector<std::string> recorded_kernels() {
  const std::lock_guard lock(recording);
  return last_names;
}

c10::Stream new_pretend_stream() {
  return c10::Stream(c10::Stream::UNSAFE, pretend_device(), ++last_stream);
}

c10::Stream current_pretend_stream() {
  return c10::Stream(c10::Stream::UNSAFE, pretend_device(), current_stream);
}

c10::Stream exchange_pretend_stream(c10::Stream stream) {
  const c10::Stream before = current_pretend_stream();
  current_stream = stream.id();
  return before;
}

void compute_alone() {
  thread_local const bool alone = (at::set_num_threads(1), true);
  static_cast<void>(alone);
}

Recorder* recorder_of_kernel(const std::string& name) {
  {
    const std::lock_guard lock(recording);
    const auto graph = recorded.find(current_stream);
    if (graph != recorded.end()) return graph->second;
    if (kernel_log != nullptr) kernel_log->push_back(name);
  }
  return late_stream();
}

std::vector<std::string> kernels_of(const std::function<void()>& work) {
  std::vector<std::string> names;
  const auto log = [](std::vector<std::string>* to) {
    const std::lock_guard lock(recording);
    kernel_log = to;
  };
  log(&names);
  work();
  log(nullptr);
  return names;
}

PretendGraph::PretendGraph(const c10::Stream& stream) : stream_(stream) {}

PretendGraph::~PretendGraph() {
  const std::lock_guard lock(recording);
  recorded.erase(stream_.id());
}

void PretendGraph::begin() {
  TORCH_CHECK(current_stream == stream_.id(), "[pretend] recording begins on another stream");
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  random_ = generator.get_state();
  const std::lock_guard lock(recording);
  recorded[stream_.id()] = this;
}

/// What was drawn to find the shapes of results counts as not drawn.
void PretendGraph::end() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_state(random_);
  const std::lock_guard lock(recording);
  recorded.erase(stream_.id());
}

void PretendGraph::add(const std::string& name, std::function<void()> kernel) {
  names_.push_back(name);
  kernels_->push_back(std::move(kernel));
}

void PretendGraph::wait(const std::string& what) {
  TORCH_CHECK(false, what, ": operation not permitted when stream is capturing");
}

void PretendGraph::replay() const {
  const auto launch = [kernels = kernels_] {
    const at::NoGradGuard no_grad;
    compute_alone();
    for (const auto& kernel : *kernels) kernel();
  };
  Recorder* const late = late_stream();
  late == nullptr ? launch() : late->add("graph", launch);
}

}  // namespace prunex::tests
