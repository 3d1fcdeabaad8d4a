#!/usr/bin/env bash
# Proves and measures the CUDA backend on a machine with a GPU: bits against the CPU, compute-sanitizer, benchmarks at
# true sizes, the program itself.
#   scripts/gpu_check.sh [--stage NAME]... [--step NAME]... [--limit SECONDS] [--bin DIR] [--commit ID] [--out DIR]
#     [--arch 90] [--build-only]
# Stages, all by default, in this order:
#   bits      op tests, checkpoints, drafting generations (100 repetitions), true shapes, 4,944 tokens
#   program   mere.run on the GPU and on the CPU: the same text, tokens and snapshots (needs mere.run, see below)
#   tests     tests of exactness and of the prefix cache, computing on the GPU (needs their programs, as above)
#   bench     read bandwidth and linears, 27B and 35B, both behind 64K positions, draft steps
#   sanitize  memcheck and racecheck of the op tests
# --step runs only the named steps of the stages: ops bits generate shapes long, exact prefix, linears 27b 35b 27b-64k
# 35b-64k, memcheck racecheck, or those of the program.
# --limit ends the last step in time and skips the rest, so that a receipt is whole whatever happens.
# --bin takes mererun_cuda_check, mererun_kernels_tests, mere.run, mererun_exact_tests and mererun_engine_tests, and
# their libraries in lib/, from a folder;
# without it the first two are compiled here with nvcc and g++ (no CMake): fmt, nlohmann-json, OpenSSL's libcrypto and
# GoogleTest come from the system or from MERERUN_DEPS (include/, lib/), and the last three are build/release/bin's.
# Receipt: DIR/receipt.jsonl, one line a step, written as steps end, with every record of mererun_cuda_check; logs
# beside it. Exit status 1 if anything differs, fails or did not finish.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 70

out=build/gpu_check/out arch=90 build_only='' bin='' limit=100000 commit='' stages=() only=()
while (($#)); do
  case $1 in
    --build-only) build_only=1 ;;
    --stage) stages+=("$2"); shift ;;
    --step) only+=("$2"); shift ;;
    --limit) limit=$2; shift ;;
    --bin) bin=$2; shift ;;
    --commit) commit=$2; shift ;;
    --out) out=$2; shift ;;
    --arch) arch=$2; shift ;;
    *) echo "gpu_check: unknown option $1; see the head of scripts/gpu_check.sh" >&2; exit 64 ;;
  esac
  shift
done
((${#stages[@]})) || stages=(bits program tests bench sanitize)
for stage in "${stages[@]}"; do
  case $stage in
    bits | program | tests | bench | sanitize) ;;
    *) echo "gpu_check: expected stage bits, program, tests, bench or sanitize, got $stage" >&2; exit 64 ;;
  esac
done
wants() { [[ " ${stages[*]} " == *" $1 "* ]]; }

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
  for file in src/{base,device,tensor,checkpoint,cache,model,decode,kernels,kernels/cpu,device/cuda,kernels/cuda}/*.cc tests/cuda/*.cc; do
    case $file in  # the disk store needs libraries of its own
      */cache/disk_store_absent.cc) ;;
      */cuda_absent.cc | */cache/disk_* | */cache/prefix_digest.cc | */cache/sealed_file.cc | */cache/snapshot_image.cc | */cache/sqlite_*) continue ;;
    esac
    job "${file//\//_}" "${host[@]}" "$file"
  done
  for file in src/kernels/cuda/*.cu tests/cuda/*.cu; do
    case $file in
      *warpgroup.cu) job "${file//\//_}" "${device[@]//_$arch/_90a}" "$file" ;;
      *) job "${file//\//_}" "${device[@]}" "$file" ;;
    esac
  done
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
  for file in src/kernels/reference/{attention,delta,experts,index,linear,misc,norm,streams}.cc; do
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
  job reference_flash "${host[@]}" src/kernels/reference/flash_ops.cc
  job reference_unpack "${host[@]}" src/kernels/reference/unpack.cc
  wants bits || wants sanitize || return 0
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

if [[ -n $bin ]]; then
  check=$bin/mererun_cuda_check ops=$bin/mererun_kernels_tests programs=$bin
  export LD_LIBRARY_PATH=$bin/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
else
  SECONDS=0
  build || { echo "gpu_check: the build failed" >&2; exit 70; }
  echo "gpu_check: built in $SECONDS s"
  limit=$((limit - SECONDS))
  check=build/gpu_check/cuda_check ops=build/gpu_check/ops programs=build/release/bin
fi
[[ -z $build_only ]] || exit 0

golden=build/gpu_check/golden flash=build/gpu_check/tiny-flash
mkdir -p "$golden"
tar xf tests/golden/data.tar.xz -C "$golden" || exit 70
receipt=$out/receipt.jsonl
status=0 SECONDS=0
[[ -n $commit ]] || commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1)
printf '{"receipt":"gpu_check","commit":"%s","date":"%s","driverVersion":"%s","stages":"%s"}\n' \
  "$commit" "$(date -u +%F)" "$driver" "${stages[*]}" | tee -a "$receipt"

# step STAGE NAME MOST COMMAND...: runs it in what is left of the limit, at most MOST seconds; one receipt line
step() {
  local stage=$1 name=$2 most=$3 left=$((limit - SECONDS)) start=$SECONDS result
  shift 3
  ((${#only[@]} == 0)) || [[ " ${only[*]} " == *" $name "* ]] || return 0
  if ((left < 8)); then
    printf '{"stage":"%s","step":"%s","result":"skipped: out of time"}\n' "$stage" "$name" | tee -a "$receipt"
    status=1
    return
  fi
  ((left < most)) && most=$left
  if [[ $(type -t "$1") == function ]]; then
    "$@" >"$out/$name.log" 2>&1
  else
    timeout -k 5 "$most" "$@" >"$out/$name.log" 2>&1
  fi
  case $? in
    0) result=pass ;;
    124 | 137) result="stopped after $most s" status=1 ;;
    *) result=fail status=1 ;;
  esac
  printf '{"stage":"%s","step":"%s","result":"%s","seconds":%d,"endOfLog":"%s"}\n' "$stage" "$name" "$result" \
    $((SECONDS - start)) "$(tail -n 2 "$out/$name.log" | sed "s#$out/##g; s#$PWD/##g" | tr -d '"\\' | tr '\n\t' '  ' | cut -c1-300)" | tee -a "$receipt"
}
# records STAGE NAME MOST: a step of mererun_cuda_check, with its records
records() {
  step "$1" "$2" "$3" "$check" --golden "$golden" --out "$out/$2.json" --commit "$commit" "$2"
  [[ ! -f $out/$2.log ]] || grep '^{' "$out/$2.log" | tee -a "$receipt"
}

# Runs a test program in parts side by side, each at most as long as the step.
in_parts() {
  local parts i pids=() failed=0
  parts=$(nproc)
  ((parts <= 16)) || parts=16
  for ((i = 0; i < parts; ++i)); do
    GTEST_TOTAL_SHARDS=$parts GTEST_SHARD_INDEX=$i timeout -k 5 "$most" "$@" >"$out/$name.$i.log" 2>&1 &
    pids+=($!)
  done
  for i in "${pids[@]}"; do wait "$i" || failed=$?; done
  grep -hE 'Failure|FAILED|ERROR SUMMARY|RACECHECK SUMMARY' "$out/$name".*.log | sort | uniq -c
  # A part that was stopped ends inside a test.
  tail -qn 1 "$out/$name".*.log | grep -F '[ RUN '
  awk '/PASSED/ { n += $4 } END { print n " tests passed" }' "$out/$name".*.log
  return $failed
}

# Runs the program on both backends and compares what it says.
same_text() {
  local root=$1 prompt=$2 backend
  shift 2
  for backend in cpu cuda; do
    "$program" text chat --model-root "$root" --backend "$backend" --temperature 0 --max-tokens 200 --quiet \
      "$@" --prompt "$prompt" >"$out/text.$backend" || return 1
  done
  cmp "$out/text.cpu" "$out/text.cuda" && wc -c "$out/text.cuda"
}
# The tiny Flash-Next checkpoint in $1 with the bundled tokenizer cut down to its 512 ids (bytes, the first merges, the
# special tokens last), and with room for the prompts of a qualification.
make_flash_folder() {
  rm -rf "$1" && cp -r "$golden/tiny-flash/mlx" "$1" && cp models/demo-dense-4bit/chat_template.jinja "$1" &&
    python3 - models/demo-dense-4bit "$1" <<'PYTHON'
import json, sys
read = lambda folder, name: json.load(open(f"{folder}/{name}"))
write = lambda name, value: json.dump(value, open(f"{sys.argv[2]}/{name}", "w"))
tokenizer, options = read(sys.argv[1], "tokenizer.json"), read(sys.argv[1], "tokenizer_config.json")
config = read(sys.argv[2], "config.json")
model, added = tokenizer["model"], tokenizer["added_tokens"]
first = config["text_config"]["vocab_size"] - len(added)
model["merges"] = model["merges"][: first - 256]
model["vocab"] = {piece: id for piece, id in model["vocab"].items() if id < first}
options["added_tokens_decoder"] = {}
for id, token in enumerate(added, first):
    token["id"] = id
    options["added_tokens_decoder"][str(id)] = {key: value for key, value in token.items() if key != "id"}
config["text_config"]["max_position_embeddings"] = 16384
write("tokenizer.json", tokenizer)
write("tokenizer_config.json", options)
write("config.json", config)
PYTHON
}
# Qualifies a checkpoint on both backends: the same verdicts, text and bytes of snapshots. Random weights do not name
# the marker in the long prompt, so the first step may fail; no other may.
same_qualification() {
  local backend
  for backend in cpu cuda; do
    "$program" model qualify --model-root "$1" --backend "$backend" --json >"$out/qualify.$backend"
  done
  python3 - "$out/qualify.cpu" "$out/qualify.cuda" <<'PYTHON'
import json, sys
steps = [json.load(open(path))["steps"] for path in sys.argv[1:]]
said = [[(s["name"], s["pass"], {k: v for k, v in s["details"].items() if "SHA256" in k or "Equal" in k or "cached" in k})
         for s in each] for each in steps]
assert said[0] == said[1] and all(s["pass"] for each in steps for s in each[1:]), said
print("qualified:", ", ".join(f"{s['name']} {'yes' if s['pass'] else 'no'}" for s in steps[1]))
PYTHON
}
# is_there STAGE STEP PROGRAM: or the receipt says that it is not.
is_there() {
  [[ -x $3 ]] || { printf '{"stage":"%s","step":"%s","result":"skipped: no %s"}\n' "$@" | tee -a "$receipt"; return 1; }
}
# gpu_tests STEP PROGRAM FILTER
gpu_tests() {
  is_there tests "$1" "$programs/$2" || return 0
  step tests "$1" 150 in_parts env MERERUN_TEST_BACKEND=cuda "$programs/$2" "--gtest_filter=$3"
}
program_steps() {
  local model program=$programs/mere.run
  is_there program all "$program" || return 0
  for model in demo-dense-4bit demo-moe-4bit; do
    step program "chat-$model" 30 same_text "models/$model" 'Write a Python function that checks whether a number is prime.'
    step program "chat-serial-$model" 30 same_text "models/$model" 'Why is the sky blue?' --speculation off
    step program "inspect-$model" 20 "$program" model inspect --model-root "models/$model" --backend cuda --json
    step program "verification-$model" 40 "$program" model benchmark q38-verification --model-root "models/$model" \
      --backend cuda --json
    step program "mtp-$model" 60 "$program" model benchmark q36-mtp --model-root "models/$model" --backend cuda --json
  done
  make_flash_folder "$flash"
  step program chat-flash 30 same_text "$flash" 'Why is the sky blue?' --speculation on
  step program chat-serial-flash 30 same_text "$flash" 'Why is the sky blue?' --speculation off
  step program qualify-flash 90 same_qualification "$flash"
  step program verification-flash 40 "$program" model benchmark q38-verification --model-root "$flash" --backend cuda --json
  step program verification-synthetic-27b 90 "$program" model benchmark q38-verification --synthetic q38-27b \
    --backend cuda --json
  step program verification-synthetic-flash 60 "$program" model benchmark q38-verification --synthetic small-flash \
    --backend cuda --json
  step program mtp-synthetic-flash 60 "$program" model benchmark q36-mtp --synthetic small-flash --backend cuda --json
  step program refuses-absent-device 10 bash -c \
    '"$0" text chat --model-root models/demo-dense-4bit --backend cuda --device 9 --prompt x; [[ $? == 69 ]]' "$program"
}

for stage in "${stages[@]}"; do
  case $stage in
    bits)
      step bits ops 90 "$ops" '--gtest_filter=*cuda*' --gtest_brief=1
      records bits bits 120
      records bits generate 60
      records bits shapes 90
      records bits long 90
      ;;
    program) program_steps ;;
    tests)
      # Left out: attention alone, which the ops have tests for, and states of many thousand positions.
      gpu_tests exact mererun_exact_tests '-*LongAttention*:*4090:*8190'
      gpu_tests prefix mererun_engine_tests '*Prefix*:*Verification*'
      ;;
    bench)
      records bench linears 60
      for name in 27b 35b 27b-64k 35b-64k; do records bench "$name" 90; done
      ;;
    sanitize)
      for tool in memcheck racecheck; do
        step sanitize "$tool" 150 in_parts compute-sanitizer --tool "$tool" --error-exitcode 9 "$ops" '--gtest_filter=*cuda*'
      done
      ;;
  esac
done
echo "gpu_check: $SECONDS s, status $status, receipt $receipt"
exit $status
