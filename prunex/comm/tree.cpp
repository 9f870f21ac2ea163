#include "prunex/comm/tree.h"

namespace prunex::comm {

Tree binomial_tree(int root, Place place) {
  const int v = (place.rank - root + place.size) % place.size;
  Tree tree;
  for (int step = 1; step < place.size; step *= 2) {
    if (v >= step && v < 2 * step) tree.parent = (v - step + root) % place.size;
    if (v < step && v + step < place.size) tree.children.push_back((v + step + root) % place.size);
  }
  return tree;
}

}  // namespace prunex::comm
