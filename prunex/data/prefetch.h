// Batches that threads make ahead of their use.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "prunex/data/augment.h"
#include "prunex/data/dataset.h"
#include "prunex/data/loader.h"
#include "prunex/data/pixels.h"
#include "prunex/data/workers.h"

namespace prunex::data {

/// An image of a batch and what happens to it.
struct Part {
  int64_t number;
  Draws draws;
};

/// Uninitialised, of the CPU: size x C x H x W, channels_last.
Batch empty_batch(const Dataset& dataset, int64_t size, at::ScalarType type);

/// Of images that are streamed. Holds options().prefetch batches of bytes and the one that was taken last.
class Prefetch {
 public:
  using PartsOf = std::function<std::vector<Part>(Cursor)>;

  /// `own`: as Pixels takes it.
  Prefetch(const Dataset& dataset, const std::vector<int64_t>& own);

  /// Pixels and labels of the batch there; `parts_of` says of what batches are made, also of those that follow in
  /// `loader`. What is made does not depend on threads.
  Batch take(Cursor place, const Loader& loader, const PartsOf& parts_of);

 private:
  struct Ahead {
    Cursor place;
    Batch batch;
    std::shared_ptr<Workers::Job> job;
  };

  void begin(Cursor place, const PartsOf& parts_of);

  const Dataset dataset_;
  const Pixels pixels_;
  std::deque<Ahead> ahead_;
  Workers workers_;  // last: ends before what its threads use
};

}  // namespace prunex::data
