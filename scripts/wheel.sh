#!/usr/bin/env bash
# wheel.sh: dist/prunex-*.tar.gz and, built from that, dist/prunex-*.whl, which brings the distribution's libraries
# along: for machines with the same torch whose C library is not older than this one's.
# scripts/setup.sh --python installs what it uses.
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

rm -rf "$work" dist
mkdir -p "$work"
python -m build --no-isolation --sdist --outdir dist
# Without pip's cache, which knows a distribution by its name and would return what an earlier one of this version gave.
python -m pip wheel --no-cache-dir --no-deps --build-constraint scripts/requirements/python.txt \
  --config-settings cmake.define.PRUNEX_COMMIT="$(git describe --always --dirty --abbrev=10 || echo unknown)" \
  --wheel-dir "$work" dist/*.tar.gz
repair
twine check --strict dist/*
