#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <fmt/format.h>

#include <stdexcept>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "prunex/comm/store.h"

namespace prunex::comm {
namespace {

// c10d logs what it throws, with a stack trace; the exception is enough.
class QuietTorch {
 public:
  QuietTorch() { FLAGS_caffe2_log_level = c10::GLOG_FATAL; }
  ~QuietTorch() { FLAGS_caffe2_log_level = level_; }

 private:
  const int level_ = FLAGS_caffe2_log_level;
};

class TorchStore final : public Store {
 public:
  TorchStore(c10::intrusive_ptr<c10d::TCPStore> store, std::string prefix)
      : store_(std::move(store)), prefix_(std::move(prefix)) {}

  void set(const std::string& key, const std::string& value) override {
    store_->set(prefix_ + key, std::vector<uint8_t>(value.begin(), value.end()));
  }

  // A torch store answers a wait that ran out with DistStoreError, a lost server with DistNetworkError.
  std::optional<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override {
    const QuietTorch quiet;
    try {
      store_->wait({prefix_ + key}, timeout);
      const auto value = store_->get(prefix_ + key);
      return std::string(value.begin(), value.end());
    } catch (const c10::DistStoreError&) {
      return std::nullopt;
    } catch (const c10::Error&) {
      throw std::runtime_error(
          fmt::format("[comm] lost the store at {}:{}: its host has ended", store_->getHost(), store_->getPort()));
    }
  }

 private:
  c10::intrusive_ptr<c10d::TCPStore> store_;
  std::string prefix_;
};

c10::intrusive_ptr<c10d::TCPStore> open(const std::string& host, const c10d::TCPStoreOptions& options) {
  const QuietTorch quiet;
  try {
    return c10::make_intrusive<c10d::TCPStore>(host, options);
  } catch (const c10::Error&) {
    const auto place = fmt::format("{}:{}", host, options.port);
    if (options.isServer) throw std::runtime_error("[comm] cannot host the store at " + place + ": port taken?");
    throw std::runtime_error(fmt::format("[comm] no store at {} within {:g} s: did rank 0 start there?", place,
                                         std::chrono::duration<double>(options.timeout).count()));
  }
}

}  // namespace

TcpStore host_tcp_store(uint16_t port, const std::string& prefix) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = true;
  options.waitWorkers = false;
  auto store = open("localhost", options);
  const auto chosen = store->getPort();
  return {std::make_unique<TorchStore>(std::move(store), prefix), chosen};
}

std::unique_ptr<Store> reach_tcp_store(const std::string& host, uint16_t port, const std::string& prefix,
                                       std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.waitWorkers = false;
  options.timeout = timeout;
  return std::make_unique<TorchStore>(open(host, options), prefix);
}

}  // namespace prunex::comm
