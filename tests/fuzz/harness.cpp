#include "tests/fuzz/harness.h"

#include <sanitizer/allocator_interface.h>
#include <stdlib.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace prunex::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMultiple = 64, kBase = 32 << 20;

/// Bytes of the heap beyond those at the begin of a call; the limit is looked at in every allocation.
struct Heap {
  std::atomic<int64_t> held{0};
  std::atomic<int64_t> limit{INT64_MAX};
};
Heap heap;

void allocated(const volatile void*, size_t bytes) {
  if ((heap.held += static_cast<int64_t>(bytes)) <= heap.limit) return;
  heap.limit = INT64_MAX;
  std::fprintf(stderr, "holds %lld bytes\n", static_cast<long long>(heap.held));
  std::abort();
}

void freed(const volatile void* block) {
  if (block != nullptr) {
    heap.held -= static_cast<int64_t>(__sanitizer_get_allocated_size(const_cast<const void*>(block)));
  }
}

struct Folder {
  std::string path = fs::temp_directory_path() / "prunex-fuzz-XXXXXX";

  Folder() {
    if (::mkdtemp(path.data()) == nullptr) fail("no folder for temporary files");
  }
  ~Folder() { fs::remove_all(path); }
};

void expect_line(const char* text) {
  if (*text == '\0' || std::strpbrk(text, "\n\r") != nullptr) fail(std::string("not one line: ") + text);
}

}  // namespace

const std::string& folder() {
  static const Folder own;
  return own.path;
}

std::string file_of(std::string_view bytes) {
  const auto path = folder() + "/input";
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  return path;
}

void expect_clear(size_t input_bytes, const std::function<void()>& call) {
  heap.held = 0;
  heap.limit = kBase + kMultiple * static_cast<int64_t>(input_bytes);
  try {
    call();
  } catch (const std::invalid_argument& error) {
    expect_line(error.what());
  } catch (const std::runtime_error& error) {
    expect_line(error.what());
  }
  heap.limit = INT64_MAX;
}

void fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
}

void write_seed(const std::string& directory, const std::string& name, std::string_view bytes) {
  std::ofstream(directory + "/" + name, std::ios::binary) << bytes;
}

}  // namespace prunex::fuzz

/// `fuzz_NAME --seeds DIRECTORY` writes the seeds and ends.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  if (*argc == 3 && std::strcmp((*argv)[1], "--seeds") == 0) {
    std::filesystem::create_directories((*argv)[2]);
    prunex::fuzz::write_seeds((*argv)[2]);
    std::exit(0);
  }
  __sanitizer_install_malloc_and_free_hooks(prunex::fuzz::allocated, prunex::fuzz::freed);
  return 0;
}
