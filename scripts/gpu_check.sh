#!/usr/bin/env bash
# Builds the CUDA checks on a machine with a GPU and nvcc, and runs them: bits against the CPU, compute-sanitizer on
# the op tests, bandwidth and model benchmarks. Needs no CMake configuration; fmt, nlohmann-json and OpenSSL's
# libcrypto (and GoogleTest, for the op tests) are taken from the system or from MERERUN_DEPS (include/, lib/).
#   scripts/gpu_check.sh [--build-only] [--out DIR] [--arch 90] STEP ...
#     STEP: ops (op tests), memcheck, racecheck, bits, shapes, linears, 27b, 35b; none: all of them
# Results: DIR/cuda_check.json (receipt) and DIR/ops.log. Exit status 1 if anything differs.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 70

out=build/gpu_check/out arch=90 build_only='' steps=()
while (($#)); do
  case $1 in
    --build-only) build_only=1 ;;
    --out) out=$2; shift ;;
    --arch) arch=$2; shift ;;
    --*) echo "gpu_check: unknown option $1; see the head of scripts/gpu_check.sh" >&2; exit 64 ;;
    *) steps+=("$1") ;;
  esac
  shift
done
((${#steps[@]})) || steps=(ops memcheck racecheck bits shapes linears 27b 35b)

objects=build/gpu_check/objects
mkdir -p "$objects" "$out"
deps=()
[[ -z ${MERERUN_DEPS:-} ]] || deps=(-I"$MERERUN_DEPS/include" -L"$MERERUN_DEPS/lib")
cuda=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
common=(-std=c++20 -O3 -Isrc -I. "${deps[@]}" -DFMT_HEADER_ONLY)
host=(g++ "${common[@]}" -ffp-contract=off -fno-math-errno -fno-trapping-math -I"$cuda/include"
  '-DMERERUN_SOURCE_DIR="'"$PWD"'"' '-DMERERUN_BINARY_DIR="'"$PWD/build"'"')
device=(nvcc "${common[@]}" -fmad=false -ftz=false -prec-div=true -prec-sqrt=true -Xcompiler=-ffp-contract=off
  -gencode "arch=compute_$arch,code=sm_$arch" -lineinfo)
avx2=(-mavx2 -mfma -mf16c -mbmi2)
avx512=("${avx2[@]}" -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)

jobs=()
# job OBJECT COMMAND...: one compilation, quoted for a shell
job() {
  local object=$1
  shift
  jobs+=("$(printf '%q ' "$@" -c -o "$objects/$object.o")")
}
plan_build() {
  local file name build
  for file in src/{base,device,tensor,checkpoint,cache,model,kernels,kernels/cpu,device/cuda,kernels/cuda}/*.cc tests/cuda/*.cc; do
    [[ $file != */cuda_absent.cc ]] || continue
    job "${file//\//_}" "${host[@]}" "$file"
  done
  for file in src/kernels/cuda/*.cu tests/cuda/*.cu; do job "${file//\//_}" "${device[@]}" "$file"; done
  for file in src/kernels/cpu/isa/*.cc; do
    name=$(basename "$file" .cc)
    case $name in
      *neon) continue ;;
      *vnni) job "$name" "${host[@]}" "${avx512[@]}" -mavx512vnni "$file" ;;
      *avx512) job "$name" "${host[@]}" "${avx512[@]}" "$file" ;;
      *avx2) job "$name" "${host[@]}" "${avx2[@]}" "$file" ;;
      *) job "$name" "${host[@]}" "$file" ;;
    esac
  done
  for file in src/kernels/reference/{attention,delta,experts,linear,misc,norm}.cc; do
    for build in baseline fused; do
      name=reference_${build}_$(basename "$file" .cc)
      if [[ $build == fused ]]; then
        job "$name" "${host[@]}" -mavx2 -mfma -DMERERUN_REFERENCE_BUILD=fused "$file"
      else
        job "$name" "${host[@]}" -DMERERUN_REFERENCE_BUILD=baseline "$file"
      fi
    done
  done
  job reference_ops "${host[@]}" -DMERERUN_REFERENCE_FUSED src/kernels/reference/reference_ops.cc
  job reference_unpack "${host[@]}" src/kernels/reference/unpack.cc
  [[ " ${steps[*]} " == *\ ops\ * || " ${steps[*]} " == *check\ * ]] || return 0
  for file in tests/kernels/*_test.cc; do
    case $file in *cpu_*) continue ;; esac
    job "test_$(basename "$file" .cc)" "${host[@]}" -Isrc "$file"
  done
}
build() {
  plan_build
  # Slow device files first, so that no core waits for the last one.
  printf '%s\n' "${jobs[@]}" | sort -r -s -k1,1 | xargs -P "$(nproc)" -d '\n' -n 1 bash -c || return 1
  ar rcs build/gpu_check/core.a $(ls "$objects"/*.o | grep -vE '/(test_|tests_)') || return 1
  local link=(-L"$cuda/lib64" "${deps[@]}" -lcrypto -lcudart_static -lpthread -ldl -lrt)
  g++ -o build/gpu_check/cuda_check "$objects"/tests_cuda_*.o build/gpu_check/core.a "${link[@]}" || return 1
  compgen -G "$objects/test_*.o" >/dev/null || return 0
  g++ -o build/gpu_check/ops "$objects"/test_*.o build/gpu_check/core.a -lgtest_main -lgmock -lgtest "${link[@]}"
}

build || { echo "gpu_check: the build failed" >&2; exit 70; }
[[ -z $build_only ]] || exit 0
status=0
checks=()
for step in "${steps[@]}"; do
  case $step in
    ops) build/gpu_check/ops --gtest_filter='*cuda*' --gtest_brief=1 >"$out/ops.log" 2>&1 || status=1
      tail -n 60 "$out/ops.log" ;;
    memcheck | racecheck)
      compute-sanitizer --tool "$step" --error-exitcode 9 build/gpu_check/ops --gtest_filter='*cuda*' \
        --gtest_brief=1 >"$out/$step.log" 2>&1 || status=1
      tail -n 4 "$out/$step.log" ;;
    *) checks+=("$step") ;;
  esac
done
if ((${#checks[@]})); then
  build/gpu_check/cuda_check --out "$out/cuda_check.json" \
    --commit "$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)" "${checks[@]}" || status=1
fi
exit $status
