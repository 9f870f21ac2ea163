#include "prunex/comm/shm/node_guard.h"

#include <fmt/format.h>

#include <exception>
#include <stdexcept>

namespace prunex::comm {
namespace {

std::string text_of(std::exception_ptr exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

// When another rank of the node gave up, it need not be the one that is lost: the switch is to know in a moment.
void NodeGuard::fail(const char* operation) const {
  auto text = text_of(std::current_exception());
  const bool timed_out = text.starts_with("no answer");
  if (!timed_out && memory->abort_reason().empty()) guard.abort_switch->reason(guard.patience);
  const auto known = memory->abort_reason();
  if (!text.starts_with("[comm]")) {  // as those of the rail do
    text = fmt::format("[comm] rank {}: {} in {}: {}", rank, operation, group, known.empty() ? text : known);
  }
  memory->abort(text);
  throw std::runtime_error(text);
}

}  // namespace prunex::comm
