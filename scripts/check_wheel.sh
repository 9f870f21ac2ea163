#!/usr/bin/env bash
# check_wheel.sh: installs dist/prunex-*.whl in a virtual environment that has nothing but .venv's torch, and uses it.
# scripts/setup.sh --tests installs what it wants.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly source=$PWD environment=$PWD/build/wheel/environment
export OMP_NUM_THREADS=1

# Of the libraries that a program or library names, those that match, in their order.
needed() { readelf --dynamic "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -E "$2" | tr '\n' ' '; }

expect() {
  [[ $2 == $3 ]] && return
  echo "check_wheel.sh: $1: got '$2', wanted '$3'" >&2
  return 1
}

# Nobody brings a Gloo beside that of torch.
check_libraries() {
  local package
  package=$(echo "$environment"/lib/python*/site-packages/prunex)
  expect "libraries of the command" "$(needed "$package/bin/prunex" 'gloo|torch')" "libtorch_cpu.so "
  expect "libraries of the extension" "$(needed "$package"/_prunex*.so 'gloo|torch')" "libtorch_cpu.so "
  ! ls "$package".libs | grep -E '^lib(torch|c10|cu|nv)'
}

# Of what is compiled in.
check_licences() {
  local name
  for name in libcli11-dev libtomlplusplus-dev nanobind nlohmann-json3-dev robin-map; do
    expect "licences" "$(find "$site"/prunex-*.dist-info/licenses/bundled -name "$name" -size +0 -printf %f)" "$name"
  done
}

.venv/bin/python -c 'import numpy, pytest, torch' 2>/dev/null || {
  echo "check_wheel.sh: .venv cannot import torch, numpy and pytest: scripts/setup.sh --tests installs them" >&2
  exit 2
}
rm -rf "$environment"
.venv/bin/python -m venv "$environment"
site=$(echo "$environment"/lib/python*/site-packages)
"$environment/bin/python" -m pip install --disable-pip-version-check -q --no-index --no-deps dist/prunex-*.whl
(cd "$source" && .venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') > "$site/torch.pth"

cd "$environment"
check_libraries
check_licences
bin/prunex --version
bin/prunex train --nodes 2 --model resnet8 --samples 80 --exchanges 8 --local-steps 2 --batch-size 8 \
  --run-dir run --quiet
bin/python -c 'import prunex; print(prunex.evaluate("run/model.pt2", samples=80))'
bin/python -m torch.distributed.run --standalone --log-dir=/dev/null --nproc-per-node 2 \
  "$source/python/tests/two_ranks.py" | tee ranks
expect "ranks with the same weights" "$(sort ranks | uniq -c | awk 'NF { print $1 }')" 2
bin/python -m pytest -q -p no:cacheprovider "$source/python/tests/test_package.py"
