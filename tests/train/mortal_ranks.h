// Ranks that are threads of one elastic run, of which one ends at a collective operation, as if its process had; and
// nodes that join.
#pragma once

#include <atomic>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "prunex/comm/connect.h"
#include "prunex/comm/store.h"
#include "prunex/train/elastic/elastic.h"
#include "prunex/train/trainer.h"
#include "tests/comm/quick_ranks.h"
#include "tests/texts.h"
#include "tests/train/whole_runs.h"

namespace prunex::train {

/// Not what a lost rank makes others throw.
struct Death : std::exception {
  const char* what() const noexcept override { return "the end of this rank"; }
};

/// Collective operations of one rank, counted from when its run can be joined, from when it lets a node in, or from
/// when nodes have changed; it ends at one of them.
class Life {
 public:
  enum class From { kDoors, kAdmission, kChange };

  Life(std::string run_dir, int64_t last, From from = From::kDoors)
      : sign_(std::move(run_dir) + "/" + (from == From::kChange ? "membership.jsonl" : kDoorsFile)),
        last_(last),
        from_(from) {}

  /// Of all that run while a node trains, admissions alone broadcast in the world.
  void operation(bool broadcasts_in_world) {
    if (!begun_) begun_ = std::filesystem::exists(sign_) && (from_ != From::kAdmission || broadcasts_in_world);
    if (begun_ && operations_++ == last_) throw Death();
    if (!begun_ && waits_) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  int64_t operations() const { return operations_; }
  /// From now on operations that are not counted take their time.
  void wait() { waits_ = true; }

 private:
  const std::string sign_;  // a file that is there then
  const int64_t last_;
  const From from_;
  std::atomic<bool> begun_ = false, waits_ = false;
  std::atomic<int64_t> operations_ = 0;  // ddp's are those of a thread of its own
};

class MortalCommunicator final : public comm::Communicator {
 public:
  MortalCommunicator(std::unique_ptr<comm::Communicator> group, Life& life)
      : Communicator(group->name(), group->rank(), group->size()), group_(std::move(group)), life_(life) {
    stand_on(group_->nodes());
  }
  bool serves(const c10::Device& device) const override { return group_->serves(device); }
  void abort(const std::string& reason) override { group_->abort(reason); }

 private:
  template <class Operation>
  void live(const Operation& operation, bool broadcasts = false) {
    life_.operation(broadcasts && name() == "world");
    operation();
  }
  void do_all_reduce(at::Tensor& tensor, comm::Reduce reduce) override {
    live([&] { group_->all_reduce(tensor, reduce); });
  }
  void do_broadcast(at::Tensor& tensor, int root) override {
    live([&] { group_->broadcast(tensor, root); }, true);
  }
  void do_barrier() override {
    live([&] { group_->barrier(); });
  }
  void do_reduce_scatter(at::Tensor& tensor, const std::vector<comm::Range>& parts) override {
    live([&] { group_->reduce_scatter(tensor, parts); });
  }
  void do_all_gather_parts(at::Tensor& tensor, const std::vector<comm::Range>& parts) override {
    live([&] { group_->all_gather_parts(tensor, parts); });
  }
  void do_all_to_all(at::Tensor& output, const at::Tensor& input, const std::vector<comm::Range>& parts) override {
    live([&] { group_->all_to_all(output, input, parts); });
  }

  const std::unique_ptr<comm::Communicator> group_;
  Life& life_;
};

inline comm::Hierarchy mortal(comm::Hierarchy ranks, Life& life) {
  for (auto group : {&comm::Hierarchy::flat, &comm::Hierarchy::world, &comm::Hierarchy::node, &comm::Hierarchy::rail}) {
    if (ranks.*group) ranks.*group = std::make_unique<MortalCommunicator>(std::move(ranks.*group), life);
  }
  ranks.connect_others = [connect = ranks.connect_others, &life](const comm::Layout& layout, comm::Store& store,
                                                                 std::chrono::milliseconds within) {
    return mortal(connect(layout, store, within), life);
  };
  return ranks;
}

/// What became of a rank.
struct End {
  std::optional<Summary> summary;
  bool died = false;
  std::string error;
};

using Lives = std::vector<std::pair<int, Life*>>;  // of some ranks

inline End run_mortal(const TrainOptions& options, const comm::Layout& layout, comm::Store& store, const Lives& lives) {
  try {
    comm::Hierarchy ranks = comm::connect(layout, store, comm::quick());
    for (const auto& [who, life] : lives) {
      if (who == layout.rank) ranks = mortal(std::move(ranks), *life);
    }
    return {.summary = train(options, ranks, kConfig)};
  } catch (const Death&) {
    return {.died = true};
  } catch (const std::exception& error) {
    return {.error = error.what()};
  }
}

/// A run on so many nodes, of as many ranks as `options` say.
inline std::vector<End> run_mortals(const TrainOptions& options, int nodes, const Lives& lives) {
  const auto store = comm::make_memory_store();
  const int of_node = options.ranks_per_node.front();
  std::vector<End> ends(static_cast<size_t>(nodes * of_node));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < nodes * of_node; ++rank) {
    threads.emplace_back([&, rank] {
      ends[static_cast<size_t>(rank)] = run_mortal(options, comm::Layout::even(nodes, of_node, rank), *store, lives);
    });
  }
  for (auto& thread : threads) thread.join();
  return ends;
}

/// The same, and one node that joins after so many exchanges: the last Ends are its. The others wait for it; `lives`
/// has one of rank 0, counted from the admission on. `newcomer`: of its first rank.
inline std::vector<End> run_and_join(TrainOptions options, int nodes, int64_t after, const Lives& lives,
                                     Life& newcomer) {
  std::vector<End> ends;
  std::thread others([&, options] { ends = run_mortals(options, nodes, lives); });
  const std::string metrics = options.run_dir + "/metrics.jsonl";
  while (tests::lines_written(metrics) < after) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  lives.front().second->wait();
  options.join = std::exchange(options.run_dir, "");
  const std::vector<End> joined = run_mortals(options, 1, {{0, &newcomer}});
  others.join();
  ends.insert(ends.end(), joined.begin(), joined.end());
  return ends;
}

}  // namespace prunex::train
