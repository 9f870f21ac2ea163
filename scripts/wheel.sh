#!/usr/bin/env bash
# wheel.sh: dist/prunex-*.tar.gz and, built from that, dist/prunex-*.whl, which brings the distribution's libraries
# along: for machines with the same torch whose C library is not older than this one's.
# scripts/setup.sh --python installs what it uses.
#
#   scripts/wheel.sh --objects BUILD_DIR    builds this checkout with what is compiled in BUILD_DIR, after a look whether
#                                           the tar file has the same files: where both would be compiled on one day
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly work=$PWD/build/wheel
PATH=$PWD/.venv/bin:$PATH

# The licences of what is bundled, as the distribution states them.
add_licences() {
  local wheel=$1 licences library package
  licences=$(echo "$wheel"/prunex-*.dist-info)/licenses/bundled
  mkdir "$licences"
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
  [[ $# -eq 2 && $1 == --objects && -d $2 ]] || die "got '$*', wanted --objects BUILD_DIR"
  objects=$(realpath "$2")
fi
rm -rf "$work" dist
mkdir -p "$work"
python -m build --no-isolation --sdist --outdir dist
from=(dist/*.tar.gz)
if [[ -n $objects ]]; then
  missing=$(missing_in_sdist)
  [[ -z $missing ]] || die "the source distribution lacks $missing"
  from=(. --config-settings build-dir="$objects")
fi
# Without pip's cache, which knows a distribution by its name and would return what an earlier one of this version gave.
python -m pip wheel --no-cache-dir --no-deps --build-constraint scripts/requirements/python.txt \
  --config-settings cmake.define.PRUNEX_COMMIT="$(git describe --always --dirty --abbrev=10 || echo unknown)" \
  --wheel-dir "$work" "${from[@]}"
repair
twine check --strict dist/*
