#include "prunex/io/event_file.h"

#include <gtest/gtest.h>

#include "prunex/io/files.h"
#include "tests/python.h"
#include "tests/scratch.h"

namespace prunex::io {
namespace {

std::string three_records() {
  return event_file_head(1.5) + event_record(2.5, 40, {{"loss", 0.25}, {"seconds/local", 3}}) +
         event_record(3.5, 300, {{"loss", 0.125}}) + event_record(4.5, int64_t{1} << 40, {{"loss", -1e-3}});
}

TEST(EventFile, IsReadByTensorBoard) {
  tests::Scratch scratch;
  write_file_atomically(scratch / "events.out.tfevents.prunex", three_records());
  PRUNEX_RUN_PYTHON("tests/io/read_events.py", scratch.path());
}

TEST(EventFile, KeepsWhatIsEarly) {
  const std::string all = three_records();
  const std::string head = event_file_head(1.5);
  const std::string first = head + event_record(2.5, 40, {{"loss", 0.25}, {"seconds/local", 3}});
  EXPECT_EQ(events_until(all, int64_t{1} << 40), all);
  EXPECT_EQ(events_until(all, 299), first);
  EXPECT_EQ(events_until(all, 40), first);
  EXPECT_EQ(events_until(all, 39), head);
}

TEST(EventFile, KeepsWhatIsWhole) {
  const std::string all = three_records();
  const std::string last = event_record(4.5, int64_t{1} << 40, {{"loss", -1e-3}});
  for (size_t missing = 1; missing <= last.size(); ++missing) {
    const auto cut = std::string_view(all).substr(0, all.size() - missing);
    EXPECT_EQ(events_until(cut, int64_t{1} << 40).size(), all.size() - last.size());
  }
}

TEST(EventFile, EndsWhereABitIsWrong) {
  const std::string all = three_records();
  const size_t head = event_file_head(0).size();
  for (size_t at = head; at < head + 60; ++at) {
    std::string wrong = all;
    wrong[at] = static_cast<char>(wrong[at] ^ 4);
    EXPECT_EQ(events_until(wrong, int64_t{1} << 40).size(), head) << at;
  }
}

}  // namespace
}  // namespace prunex::io
