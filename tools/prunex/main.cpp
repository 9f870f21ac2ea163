// The command.
#include <malloc.h>

#include "tools/prunex/command_line.h"
#include "tools/prunex/standard_streams.h"

namespace {

/// Training allocates and frees the same large blocks in every step: keep them instead of returning them to the kernel.
void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 2'000'000'000);
  mallopt(M_TOP_PAD, 64 << 20);
}

}  // namespace

int main(int argc, char** argv) {
  prunex::tools::prepare_standard_streams();
  keep_freed_memory();
  return prunex::tools::run_command_line(argc, argv);
}
