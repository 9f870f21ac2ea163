#!/usr/bin/env bash
# gpu_kit.sh: builds with CUDA and packs gpu-kit, a folder for a machine with a GPU that can download nothing: what is
# built, the libraries that such a machine lacks, and gpu-kit/run. There it needs Python with the torch of
# scripts/requirements/libtorch.txt.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly kit=gpu-kit build=build/cuda
cmake --build "$build" -j "${JOBS:-$(nproc)}" --target prunex_tool test_nccl test_gpu

# Of a program: neither torch's nor CUDA's, which come with Python there, nor the C library's.
libraries_of() {
  ldd "$1" | sed -n 's,.* => \(/.*\) (0x.*,\1,p' | grep -Ev '/(torch|nvidia)/|/(ld-linux|lib((c|m|dl|rt|util|pthread|gcc_s|stdc\+\+)\.so|(cu|nv|nccl|torch|c10|gomp-)))'
}

rm -rf "$kit"
mkdir -p "$kit"/{bin,lib}
cp "$build/prunex" "$build/test_nccl" "$build/test_gpu" "$kit/bin"
for program in "$kit"/bin/*; do
  libraries_of "$program" | xargs -r -d '\n' cp -uL -t "$kit/lib"
  strip --strip-unneeded "$program"
done
cp bench/gpu_kit.py "$kit/run"
cp bench/{eager,batches,kept,pytorch_accuracy,sparse_training}.py compare/gpu.toml "$kit"
chmod +x "$kit/run"
du -sh "$kit" >&2
