#!/usr/bin/env bash
# clang-tidy over the sources of the library and the command, or over the files given.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly build=build/tidy

# The precompiled header is GCC's, so clang gets a build folder without one.
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_EXPORT_COMPILE_COMMANDS=ON \
  -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON ${TORCH_ROOT:+-DTORCH_ROOT="$TORCH_ROOT"} >/dev/null

files=("$@")
# Those of this build: what needs CUDA or SimGrid is not part of one without them.
[[ ${#files[@]} -gt 0 ]] ||
  mapfile -t files < <(git ls-files {prunex,launch,plan,report,study,tools}/'*.cpp' | while read -r file; do
    ! grep -qF "\"file\": \"$PWD/$file\"" "$build/compile_commands.json" || echo "$file"
  done)
[[ ${#files[@]} -gt 0 ]] || { echo "tidy: $build/compile_commands.json has none of the sources" >&2; exit 1; }
# Each file takes the better part of a minute, nearly all of it inside ATen's headers.
printf '%s\n' "${files[@]}" |
  xargs -P "$(nproc)" -n 1 clang-tidy-14 --quiet -p "$build" --warnings-as-errors='*' 2> >(grep -v 'warnings generated' >&2)
