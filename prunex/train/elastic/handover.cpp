#include "prunex/train/elastic/handover.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <stdexcept>
#include <utility>
#include <vector>

#include "prunex/io/safetensors.h"
#include "prunex/strategies/strategy.h"
#include "prunex/text/option.h"
#include "prunex/train/options.h"

namespace prunex::train {
namespace {

using strategies::State;

// Names in what is handed over: of tensors, and of those that a newcomer has of its own, as type and sizes.
constexpr const char* kOfNode = "node/";
constexpr const char* kOwnOfNode = "own/node/";
constexpr const char* kOwnOfRank = "own/{}/";  // the local rank

at::Tensor shape_of(const at::Tensor& tensor) {
  std::vector<int64_t> shape{static_cast<int64_t>(tensor.scalar_type())};
  shape.insert(shape.end(), tensor.sizes().begin(), tensor.sizes().end());
  return at::tensor(shape, at::kLong);
}

at::Tensor of_shape(const at::Tensor& shape) {
  const int64_t* numbers = shape.const_data_ptr<int64_t>();
  return at::empty({numbers + 1, static_cast<size_t>(shape.numel() - 1)}, static_cast<at::ScalarType>(numbers[0]));
}

bool is_nodes_own(const std::string& name) {
  return name.starts_with(State::kZNode) || name.starts_with(State::kCNode);
}

/// Of a node that has just joined: z instead of what another rank had trained, the mean control variate instead of
/// another node's, and nothing left over.
at::Tensor of_newcomer(const std::string& name, const at::Tensor& like, const Checkpoint& checkpoint) {
  const auto behind = [&](const std::string& prefix) {
    return name.starts_with(prefix) ? name.substr(prefix.size()) : "";
  };
  const at::Tensor* common = nullptr;
  for (const char* prefix : {State::kZNode, kTheta}) {
    if (common == nullptr) common = checkpoint.product.find(behind(prefix));
  }
  if (name.starts_with(State::kCNode)) common = checkpoint.node.find(State::kC + behind(State::kCNode));
  return common != nullptr ? common->clone() : at::zeros_like(like);
}

int64_t count_in(const std::string& text, const char* key, const std::string& name) {
  const auto count = text::number_in<int64_t>(text);
  if (count && *count >= 0) return *count;
  throw std::runtime_error(fmt::format("{} has {} '{}', wanted a count", name, key, text));
}

}  // namespace

void forget_own(Checkpoint& checkpoint) {
  for (auto& item : checkpoint.node) {
    if (is_nodes_own(item.key())) item.value() = of_newcomer(item.key(), item.value(), checkpoint);
  }
  for (const char* checksum : {kImagesChecksum, kTeacherChecksum}) {
    if (checkpoint.rank.contains(checksum)) checkpoint.rank.erase(checksum);
  }
  for (auto& item : checkpoint.rank) item.value() = of_newcomer(item.key(), item.value(), checkpoint);
}

std::string to_bytes(const Handover& handover, const std::string& config, comm::Communicator& node) {
  const Checkpoint& checkpoint = handover.checkpoint;
  TensorDict tensors;
  for (const auto& item : checkpoint.rank) tensors.insert(item.key(), shape_of(item.value()));
  const auto own = comm::gather_texts(node, io::to_safetensors(tensors));
  if (node.rank() != 0) return "";
  tensors.clear();
  for (size_t rank = 0; rank < own.size(); ++rank) {
    for (const auto& item : io::parse_safetensors(own[rank], "a rank's shapes").tensors) {
      tensors.insert(fmt::format(kOwnOfRank, rank) + item.key(), item.value());
    }
  }
  for (const auto& item : checkpoint.product) tensors.insert(State::kZ + item.key(), item.value());
  for (const auto& item : checkpoint.node) {
    const bool own = is_nodes_own(item.key());
    tensors.insert((own ? kOwnOfNode : kOfNode) + item.key(), own ? shape_of(item.value()) : item.value());
  }
  return io::to_safetensors(tensors, {{"config", config},
                                      {"exchange", std::to_string(checkpoint.exchange)},
                                      {"structure", checkpoint.structure},
                                      {"progress", checkpoint.progress},
                                      {"directory", handover.run_directory},
                                      {"precision", name_of(handover.arithmetic)},
                                      {"ranks", std::to_string(handover.ranks)}});
}

Handover take_over(std::string bytes, const std::string& config, const comm::Communicator& node) {
  const std::string name = "what the run hands over";
  const io::SafeTensors given = io::parse_safetensors(std::move(bytes), name);
  const auto text = [&](const char* key) -> const std::string& {
    const auto found = given.metadata.find(key);
    if (found == given.metadata.end()) throw std::runtime_error(fmt::format("{} has no {}", name, key));
    return found->second;
  };
  Handover handover;
  handover.run_directory = text("directory");
  check_same_options(text("config"), config, handover.run_directory, Among::kRanks);
  const auto arithmetic = arithmetic_named(text("precision"));
  if (!arithmetic) throw std::runtime_error(fmt::format("{} has precision '{}'", name, text("precision")));
  handover.arithmetic = *arithmetic;
  handover.ranks = static_cast<int>(count_in(text("ranks"), "ranks", name));
  Checkpoint& checkpoint = handover.checkpoint;
  checkpoint.exchange = count_in(text("exchange"), "exchange", name);
  checkpoint.structure = text("structure");
  checkpoint.progress = text("progress");
  const auto each = [&](const std::string& prefix, const auto& take) {
    for (const auto& item : given.tensors) {
      if (item.key().starts_with(prefix)) take(item.key().substr(prefix.size()), item.value());
    }
  };
  const auto own_in = [&](TensorDict& tensors) {
    return [&](const std::string& key, const at::Tensor& shape) {
      tensors.insert(key, of_newcomer(key, of_shape(shape), checkpoint));
    };
  };
  each(State::kZ, [&](const std::string& key, const at::Tensor& z) { checkpoint.product.insert(key, z); });
  each(kOfNode, [&](const std::string& key, const at::Tensor& value) { checkpoint.node.insert(key, value); });
  each(kOwnOfNode, own_in(checkpoint.node));
  each(fmt::format(kOwnOfRank, node.rank()), own_in(checkpoint.rank));
  return handover;
}

}  // namespace prunex::train
