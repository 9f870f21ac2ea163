#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <fmt/format.h>

#include <future>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "prunex/comm/meet/rendezvous.h"
#include "prunex/comm/meet/socket.h"
#include "prunex/comm/meet/store.h"

namespace prunex::comm {
namespace {

using StorePointer = c10::intrusive_ptr<c10d::TCPStore>;

// c10d logs what it throws, with a stack trace; the exception is enough. The level is the process's: the last of the
// calls under way puts it back.
class QuietTorch {
 public:
  QuietTorch() {
    const std::lock_guard lock(mutex_);
    if (calls_++ == 0) level_ = std::exchange(FLAGS_caffe2_log_level, c10::GLOG_FATAL);
  }
  ~QuietTorch() {
    const std::lock_guard lock(mutex_);
    if (--calls_ == 0) FLAGS_caffe2_log_level = level_;
  }
  QuietTorch(const QuietTorch&) = delete;
  QuietTorch& operator=(const QuietTorch&) = delete;

 private:
  static inline std::mutex mutex_;
  static inline int calls_ = 0, level_ = 0;
};

class TorchStore final : public Store {
 public:
  TorchStore(StorePointer store, std::string prefix) : store_(std::move(store)), prefix_(std::move(prefix)) {}

  void set(const std::string& key, const std::string& value) override {
    attempt([&] { store_->set(prefix_ + key, std::vector<uint8_t>(value.begin(), value.end())); });
  }

  // A torch store answers a wait that ran out with DistStoreError, a lost server with DistNetworkError.
  std::optional<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override {
    std::vector<uint8_t> value;
    try {
      attempt([&] {
        store_->wait({prefix_ + key}, timeout);
        value = store_->get(prefix_ + key);
      });
    } catch (const c10::DistStoreError&) {
      return std::nullopt;
    }
    if (value.size() <= kMostValueBytes) return std::string(value.begin(), value.end());
    throw std::runtime_error(fmt::format("[comm] the store at {}: {} has {} bytes, wanted at most {}", place(), key,
                                         value.size(), kMostValueBytes));
  }

 private:
  template <class Call>
  void attempt(const Call& call) const {
    const QuietTorch quiet;
    try {
      call();
    } catch (const c10::DistStoreError&) {
      throw;
    } catch (const c10::Error&) {
      throw std::runtime_error(fmt::format("[comm] lost the store at {}: its host has ended", place()));
    }
  }

  std::string place() const { return name_of(store_->getHost(), store_->getPort()); }

  StorePointer store_;
  std::string prefix_;
};

StorePointer open_store(const StorePlace& place, std::chrono::milliseconds timeout) {
  const QuietTorch quiet;
  c10d::TCPStoreOptions options;
  options.port = place.port;
  options.waitWorkers = false;
  options.timeout = timeout;
  try {
    return c10::make_intrusive<c10d::TCPStore>(place.host, options);
  } catch (const c10::Error&) {
    return {};
  }
}

}  // namespace

// c10d says neither why it does not connect nor ends when whoever answers is silent: a connection of our own asks
// first, and a thread, left behind in the end, waits for c10d.
std::unique_ptr<Store> reach_torch_store(const StorePlace& place, const std::string& prefix, Join& join) {
  wait_for_store(place, join);
  join.waits_for(fmt::format("the store at {} does not answer", name_of(place)));
  std::promise<StorePointer> promise;
  auto found = promise.get_future();
  std::thread([place, left = join.left(), promise = std::move(promise)]() mutable {
    promise.set_value(open_store(place, left));
  }).detach();
  const bool ready = found.wait_until(join.deadline()) == std::future_status::ready;
  if (auto store = ready ? found.get() : StorePointer(); store) {
    join.waits_for("");
    return std::make_unique<TorchStore>(std::move(store), prefix);
  }
  throw std::runtime_error(fmt::format(
      "[comm] no store of torchrun at {} within {} (`join_timeout`): another program answers there, or nobody does",
      name_of(place), join.limit()));
}

}  // namespace prunex::comm
