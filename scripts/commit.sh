#!/usr/bin/env bash
# commit.sh: the commit of this checkout, with "-dirty" where files were changed since. Fails outside of a clone, and
# for a copy that lies in somebody else's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ $(git rev-parse --show-toplevel) -ef . ]]
git describe --always --dirty --abbrev=10 --exclude '*'  # no tags
