// Copies of named tensors.
#pragma once

#include <string>
#include <vector>

#include "prunex/tensors.h"

namespace prunex::strategies {

/// Second names for the tensors, without autograd history.
TensorDict detached(const TensorDict& tensors);
/// Copies; of all, or of those named.
TensorDict clones(const TensorDict& tensors);
TensorDict clones(const TensorDict& tensors, const std::vector<std::string>& names);
TensorDict zeros_like(const TensorDict& tensors);
/// The tensors that `order` names, in its order.
TensorDict in_order_of(const TensorDict& order, const TensorDict& tensors);
/// Those that have a row: a cut may leave none of a shard's rows.
TensorDict with_rows(const TensorDict& tensors);

/// state["prefix" + name] <- every tensor; and the contents back.
void store(TensorDict& state, const std::string& prefix, const TensorDict& tensors);
void restore(TensorDict& tensors, const TensorDict& state, const std::string& prefix);

}  // namespace prunex::strategies
