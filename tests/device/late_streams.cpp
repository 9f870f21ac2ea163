#include "tests/device/late_streams.h"

#include <ATen/core/grad_mode.h>

#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "tests/device/pretend_memory.h"

namespace prunex::tests {
namespace {

/// Kernels wait for none but kernels, so that one lock is enough.
std::recursive_mutex mutex;

class LateStream final : public Recorder {
 public:
  void add(const std::string&, std::function<void()> kernel) override {
    const std::lock_guard lock(mutex);
    waiting_.push_back(std::move(kernel));
  }

  void wait(const std::string&) override { run_to(length()); }
  void meet_host(const std::string&) override {}
  bool leaves_results_open() const override { return true; }

  int64_t length() const {
    const std::lock_guard lock(mutex);
    return begun_ + static_cast<int64_t>(waiting_.size());
  }

  void run_to(int64_t position) {
    const std::lock_guard lock(mutex);
    const at::NoGradGuard no_grad;
    compute_alone();
    while (begun_ < position) {
      const auto kernel = std::move(waiting_.front());
      waiting_.pop_front();
      ++begun_;
      kernel();
    }
  }

 private:
  std::deque<std::function<void()>> waiting_;
  int64_t begun_ = 0;
};

struct LateEvent {
  LateStream* stream;  // null: recorded when nothing was late
  int64_t position;

  void reach() const {
    if (stream != nullptr) stream->run_to(position);
  }
};

bool late = false;
std::map<c10::StreamId, LateStream> streams;

LateStream* stream_of(const c10::Stream& stream) {
  const std::lock_guard lock(mutex);
  return late ? &streams[stream.id()] : nullptr;
}

}  // namespace

LateStreams::LateStreams() {
  const std::lock_guard lock(mutex);
  PretendMemory::instance().set_zeros(true);
  late = true;
}

LateStreams::~LateStreams() {
  const std::lock_guard lock(mutex);
  for (auto& [id, stream] : streams) stream.wait("");
  late = false;
  PretendMemory::instance().set_zeros(false);
}

Recorder* late_stream() {
  return stream_of(current_pretend_stream());
}

void record_late_event(void** event, const c10::Stream& stream) {
  destroy_late_event(*event);
  LateStream* const of = stream_of(stream);
  *event = new LateEvent{of, of == nullptr ? 0 : of->length()};
}

void block_late_stream(void* event, const c10::Stream& stream) {
  LateStream* const blocked = stream_of(stream);
  const LateEvent reached = *static_cast<LateEvent*>(event);
  if (blocked != nullptr) blocked->add("wait", [reached] { reached.reach(); });
}

void wait_for_late_event(void* event) {
  static_cast<LateEvent*>(event)->reach();
}

void wait_for_late_stream(const c10::Stream& stream) {
  if (LateStream* const of = stream_of(stream)) of->wait("");
}

void destroy_late_event(void* event) {
  delete static_cast<LateEvent*>(event);
}

}  // namespace prunex::tests
