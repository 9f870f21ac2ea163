#!/usr/bin/env bash
# Installs what the build needs: Debian or Ubuntu packages, and LibTorch in .venv. Run it as often as you like.
#
#   scripts/setup.sh                  what `make build` needs
#   scripts/setup.sh --packages       of that the packages alone: nothing is put in .venv
#   scripts/setup.sh --tests          also what `make test` needs: Python's torch and torchvision, what builds and tests the
#                                     Python package, launchers (Open MPI, Slurm), ip and tc, a browser; where some cannot
#                                     be had, their tests are skipped
#   scripts/setup.sh --python         also what `make wheel` and `make install-python` need
#   scripts/setup.sh --development    also clang and its fuzzer, clang-format, clang-tidy, Google Benchmark
#   scripts/setup.sh --simgrid        also SimGrid, for the flows of `prunex plan`
#   scripts/setup.sh --cuda           also what -DPRUNEX_CUDA=ON needs beyond a CUDA toolkit with cuDNN and NCCL, or all of it
#
# TORCH_ROOT=DIR   use the LibTorch in DIR; nothing is put in .venv
# PYTHON=FILE      make .venv with this interpreter (3.10 to 3.13)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly venv=.venv
readonly pip_version=25.3
packages=(g++ cmake ninja-build libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libfmt-dev
  libssl-dev zlib1g-dev libzip-dev libjpeg-dev libspng-dev libwebp-dev libgtest-dev libgmock-dev)

test_packages=(python3-dev openmpi-bin slurmctld slurmd slurm-client munge iproute2 chromium)

say() { printf '[setup] %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

is_installed() { [[ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]; }

missing_of() {
  local package
  for package in "$@"; do
    is_installed "$package" || echo "$package"
  done
}

as_root() {
  if [[ $EUID -eq 0 ]]; then
    env DEBIAN_FRONTEND=noninteractive "$@"
  else
    sudo env DEBIAN_FRONTEND=noninteractive "$@"
  fi
}

may_become_root() {
  [[ $EUID -eq 0 ]] || { command -v sudo >/dev/null && { [[ -t 0 ]] || sudo -n true 2>/dev/null; }; }
}

install_packages() {
  if ! command -v apt-get >/dev/null; then
    say "no apt-get here; needed are the equivalents of: ${packages[*]}"
    return
  fi
  local missing
  mapfile -t missing < <(missing_of "${packages[@]}")
  [[ ${#missing[@]} -gt 0 ]] || return 0
  say "missing packages: ${missing[*]}"
  may_become_root || die "without root or sudo, ask for: apt-get install ${missing[*]}"
  as_root apt-get update -q -o Acquire::Retries=5
  local unknown
  mapfile -t unknown < <(unknown_of "${missing[@]}")
  [[ ${#unknown[@]} -eq 0 ]] || die "this distribution has no ${unknown[*]}; wanted Debian 12, Ubuntu 24.04 or later"
  apt_install "${missing[@]}"
}

unknown_of() {
  local package
  for package in "$@"; do
    apt-cache show "$package" >/dev/null 2>&1 || echo "$package"
  done
}

apt_install() {
  as_root apt-get install -q -y --no-install-recommends -o Acquire::Retries=5 -o DPkg::Lock::Timeout=300 "$@"
}

# One by one: what a distribution does not have must not keep the others away.
install_test_packages() {
  local missing package
  command -v apt-get >/dev/null || return 0
  mapfile -t missing < <(missing_of "${test_packages[@]}")
  [[ ${#missing[@]} -gt 0 ]] || return 0
  if ! may_become_root; then
    say "without root or sudo some tests are skipped; they use ${missing[*]}"
    return 0
  fi
  say "missing packages of tests: ${missing[*]}"
  as_root apt-get update -q -o Acquire::Retries=5 || say "the lists of packages could not be refreshed"
  apt_install "${missing[@]}" && return
  for package in "${missing[@]}"; do
    apt_install "$package" || say "$package cannot be installed; tests that use it are skipped"
  done
}

# is_usable_python FILE [MODULES]
is_usable_python() {
  "$1" -c "import sys, ${2:-venv, ensurepip}; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))" 2>/dev/null
}

has_python_of_package() { "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; }

find_python() {
  local candidate
  if [[ -n ${PYTHON:-} ]]; then
    is_usable_python "$PYTHON" && echo "$PYTHON"
    return
  fi
  for candidate in python3 /usr/bin/python3 python3.{13,12,11,10}; do
    if is_usable_python "$candidate"; then
      echo "$candidate"
      return
    fi
  done
  return 1
}

# Removes no .venv but one that it has begun to make, which has either mark.
make_venv() {
  local begun=$venv/stamp-begun made=$venv/stamp-venv
  if [[ -e $venv ]]; then
    [[ -e $begun ]] || ! is_usable_python "$venv/bin/python" pip || return 0
    [[ -e $begun || -e $made ]] ||
      die "$venv is not of this script, and has no Python 3.10 to 3.13 with pip: move it away"
    say "starting $venv anew"
    rm -rf "$venv"
  fi
  mkdir "$venv"
  touch "$begun"
  "$python" -m venv "$venv"
  mv "$begun" "$made"
}

# Since pip 25.1 a download that breaks is resumed where it stopped.
pip_install() {
  local bar=on
  [[ -t 2 ]] || bar=off
  "$venv/bin/python" -m pip install --disable-pip-version-check --no-input --only-binary :all: --retries 10 \
    --timeout 60 --progress-bar "$bar" "$@" >&2
}

# The stamp is a copy of what is installed. An empty one: an earlier run was cut short, and pip may take for complete
# what is not.
install_requirements() {
  local name=$1 file=scripts/requirements/$1.txt stamp=$venv/stamp-$1 again=
  cmp -s "$file" "$stamp" && return
  say "installing $name: $(grep -v '^#' "$file" | tr '\n' ' ')"
  if ! "$venv/bin/python" -m pip --version | grep -q "^pip $pip_version "; then
    pip_install -q "pip==$pip_version"
  fi
  [[ ! -e $stamp || -s $stamp ]] || again=--force-reinstall
  : >"$stamp"
  pip_install -q --no-deps --resume-retries 20 $again -r "$file"
  "check_$name"
  cp "$file" "$stamp"
}

check_libtorch() {
  "$venv/bin/python" - <<'PYTHON' || die "LibTorch was installed, but does not load"
import ctypes, pathlib, sysconfig
ctypes.CDLL(str(pathlib.Path(sysconfig.get_path("purelib"), "torch/lib/libtorch_cpu.so")))
PYTHON
}

loads_kernels() {
  "$venv/bin/python" - 2>/dev/null <<'PYTHON'
import ctypes, pathlib, sysconfig
for name in "libtorch_cpu.so", "libtorch_cuda.so":
    ctypes.CDLL(str(pathlib.Path(sysconfig.get_path("purelib"), "torch/lib", name)))
PYTHON
}

# A CUDA toolkit with cuDNN and NCCL on this machine saves the large part.
install_kernels() {
  install_requirements kernels
  loads_kernels || install_requirements cuda
}

check_kernels() { :; }

check_cuda() { loads_kernels || die "CUDA's libraries were installed, but libtorch_cuda.so does not load"; }

check_python() {
  "$venv/bin/python" -c 'import nanobind, scikit_build_core.build' ||
    die "what builds the Python package was installed, but does not load"
}

check_pytest() {
  "$venv/bin/python" -c 'import mypy.build, pandas, pytest' ||
    die "what tests the Python package was installed, but does not load"
}

check_wheel() { :; }

check_comparison() {
  "$venv/bin/python" -c 'import torch, torchvision' || die "PyTorch was installed, but does not load"
}

compiles_with_nccl() {
  local toolkit=${CUDA_PATH:-/usr/local/cuda}
  g++ -x c++ - -o /dev/null -I"$toolkit/include" -L"$toolkit/lib64" -L"$toolkit/lib" -lnccl -lcudart 2>/dev/null <<'CODE'
#include <nccl.h>
int main() { return ncclGetVersion(nullptr); }
CODE
}

check_nccl() { :; }

main() {
  local with_tests= with_cuda= with_package= with_venv=1 option python=
  for option in "$@"; do
    case $option in
      --tests) with_tests=1 ;;
      --cuda) with_cuda=1 ;;
      --packages) with_venv= ;;
      --python) with_package=1; packages+=(python3-dev) ;;
      --development) packages+=(clang-14 libclang-rt-14-dev clang-format-14 clang-tidy-14 libbenchmark-dev) ;;
      --simgrid) packages+=(libsimgrid-dev) ;;
      -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit ;;
      *) die "unknown option '$option'; see --help" ;;
    esac
  done
  if [[ $with_venv && -z ${TORCH_ROOT:-} || $with_tests ]]; then
    find_python >/dev/null || packages+=(python3 python3-venv)
  fi
  install_packages
  [[ ! $with_tests ]] || install_test_packages
  [[ $with_venv && -z ${TORCH_ROOT:-} || $with_tests ]] || return 0
  python=$(find_python) || die "no Python 3.10 to 3.13 with the venv module; PYTHON=FILE names one"
  make_venv
  install_requirements libtorch
  [[ ! $with_tests$with_cuda ]] || install_kernels
  [[ ! $with_tests ]] || install_requirements comparison
  if [[ $with_tests$with_package ]] && has_python_of_package; then
    install_requirements python
    [[ ! $with_tests ]] || install_requirements pytest
  fi
  [[ ! $with_package ]] || install_requirements wheel
  [[ ! $with_cuda ]] || compiles_with_nccl || install_requirements nccl
}

main "$@"
