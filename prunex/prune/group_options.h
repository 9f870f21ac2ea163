// What may be removed from a network.
#pragma once

namespace prunex::prune {

/// How an analysis treats what can be treated in several ways.
struct GroupOptions {
  /// Units of axes over which a norm, a mean or a maximum is taken may go, although that changes what the others
  /// become. false: they are frozen, so that a cut equals a mask.
  bool statistics = false;
  /// Attention loses whole heads. false: it loses equal positions of all heads.
  bool heads = false;
};

}  // namespace prunex::prune
