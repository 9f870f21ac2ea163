#include "prunex/strategies/strategy.h"

namespace prunex::strategies {

Role role_of(const std::string& state_name) {
  for (const char* room : {"u/", "v/", "feedback_sent/", "feedback_returned/", "rest/", "velocity/"}) {
    if (state_name.starts_with(room)) return Role::kRank;
  }
  for (const char* room : {"z_node/", "node_mask/"}) {
    if (state_name.starts_with(room)) return Role::kNode;
  }
  return Role::kGlobal;
}

}  // namespace prunex::strategies
