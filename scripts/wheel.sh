#!/usr/bin/env bash
# wheel.sh: dist/prunex-*.tar.gz and, built from that, dist/prunex-*.whl, which brings the distribution's libraries
# along: for machines with the same torch whose C library is not older than this one's.
# scripts/setup.sh --python installs what it uses.
#
#   scripts/wheel.sh --objects BUILD_DIR    builds this checkout with what is compiled in BUILD_DIR, after a look whether
#                                           the tar file has the same files: where both would be compiled on one day.
#                                           BUILD_DIR keeps its settings
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly work=$PWD/build/wheel
PATH=$PWD/.venv/bin:$PATH

# The licences of what is compiled in and of what is bundled, as the distribution and Python's packages state them.
add_licences() {
  local wheel=$1 licences library package robin_map
  licences=$(echo "$wheel"/prunex-*.dist-info)/licenses/bundled
  mkdir "$licences"
  for package in libcli11-dev nlohmann-json3-dev libtomlplusplus-dev; do
    cp "/usr/share/doc/$package/copyright" "$licences/$package"
  done
  cp .venv/lib/python*/site-packages/nanobind-*.dist-info/licenses/LICENSE "$licences/nanobind"
  robin_map=$(echo .venv/lib/python*/site-packages/nanobind/ext/robin_map/include/tsl/robin_map.h)
  sed '/\*\//q' "$robin_map" >"$licences/robin-map"
  ldd "$wheel/prunex/bin/prunex" | awk '$3 ~ "^/" && $1 !~ "^lib(c|m|gcc_s|stdc\\+\\+)\\.so" { print $3 }' |
    while read -r library; do
      package=$(dpkg-query -S "*/$(basename "$(realpath "$library")")" | head -n 1 | cut -d: -f1)
      cp -L "/usr/share/doc/$package/copyright" "$licences/$package"
    done
}

# Libraries of torch stay out: they are loaded from beside the package.
repair() {
  wheel unpack --dest "$work" "$work"/prunex-*.whl
  rm "$work"/prunex-*.whl
  add_licences "$(echo "$work"/prunex-*)"
  wheel pack --dest-dir "$work" "$work"/prunex-*
  auditwheel repair --exclude 'libtorch*' --exclude 'libc10*' --wheel-dir dist "$work"/prunex-*.whl
}

die() { echo "wheel.sh: $*" >&2; exit 2; }

# Empty if the tar file has what git has, but for what pyproject.toml leaves out.
missing_in_sdist() {
  comm -23 <(git ls-files | grep -vE '^(\.ci|compare/results)/' | sort) <(tar -tzf dist/*.tar.gz | cut -d/ -f2- | sort)
}

objects=
if [[ $# -gt 0 ]]; then
  [[ $# -eq 2 && $1 == --objects && -e $2/CMakeCache.txt ]] || die "got '$*', wanted --objects BUILD_DIR"
  objects=$(realpath "$2")
fi
rm -rf "$work" dist
mkdir -p "$work"
if [[ -n $objects ]]; then
  cp "$objects/CMakeCache.txt" "$work/settings"
  trap 'cp "$work/settings" "$objects/CMakeCache.txt"' EXIT
  # by which scikit-build-core compiles all anew after a build in another environment
  rm -f "$objects/.skbuild-info.json"
fi
python -m build --no-isolation --sdist --outdir dist
from=(dist/*.tar.gz)
if [[ -n $objects ]]; then
  missing=$(missing_in_sdist)
  [[ -z $missing ]] || die "the source distribution lacks $missing"
  from=(. --config-settings build-dir="$objects")
fi
# Without pip's cache, which knows a distribution by its name and would return what an earlier one of this version gave.
python -m pip wheel --no-cache-dir --no-deps --build-constraint scripts/requirements/python.txt \
  --config-settings cmake.define.PRUNEX_COMMIT="$(scripts/commit.sh || echo unknown)" \
  --wheel-dir "$work" "${from[@]}"
repair
twine check --strict dist/*
