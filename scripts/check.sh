#!/usr/bin/env bash
# The gate before a change lands: formatting, lint, hygiene, build, tests with counts, help texts.
#   scripts/check.sh [--changed] [--tidy] [--no-build] [--hygiene] [--update-help]
#     --changed       format and lint only the files that differ from branch main
#     --tidy          run clang-tidy as well (minutes)
#     --no-build      only the checks that read files
#     --hygiene       only the rules of the tree, which CTest runs as well
#     --update-help   store the program's help texts in tests/cli/help.txt instead of comparing them
# Every step runs even when an earlier one failed; the exit status is 1 if any did.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 70
source scripts/setup.sh

changed='' tidy='' build=1 hygiene='' update_help=''
for argument in "$@"; do
  case $argument in
    --changed) changed=1 ;;
    --tidy) tidy=1 ;;
    --no-build) build='' ;;
    --hygiene) hygiene=1 ;;
    --update-help) update_help=1 ;;
    *) say "check: unknown option $argument; see the head of scripts/check.sh"; exit 64 ;;
  esac
done

verdicts=()
failures=0
# verdict NAME STATUS TEXT
verdict() {
  local word=ok
  if (($2 != 0)); then
    word=FAILED
    failures=$((failures + 1))
  fi
  verdicts+=("$(printf '%-10s %-7s %s' "$1" "$word" "$3")")
}

source_files() {
  local pattern=('*.h' '*.cc' '*.cu' '*.cuh')
  if [[ -n $changed ]]; then
    git diff --name-only --diff-filter=d "$(git merge-base HEAD main)" -- "${pattern[@]}"
  else
    git ls-files -- "${pattern[@]}"
  fi
}

check_format() {
  local files
  mapfile -t files < <(source_files)
  ((${#files[@]})) || { verdict format 0 "no files"; return; }
  clang-format --dry-run --Werror "${files[@]}"
  verdict format $? "${#files[@]} files"
}

check_tidy() {
  local files
  mapfile -t files < <(source_files | grep -E '^(src|tests|bench)/.*\.cc$' | grep -v '^tests/fuzz/')
  ((${#files[@]})) || { verdict tidy 0 "no files"; return; }
  printf '%s\0' "${files[@]}" |
    xargs -0 -n 1 -P "$(nproc)" clang-tidy -p build/release --quiet --warnings-as-errors='*' 2>/dev/null
  verdict tidy $? "${#files[@]} files"
}

# Text files that people write: no checkpoints, no recorded data.
prose_and_code=(':!models' ':!tests/golden' ':!tests/**/data/**' ':!tests/fuzz/corpus' ':!*.json' ':!scripts/check.sh' ':!LICENSE')

check_hygiene() {
  local status=0 hits bytes limit=$((60 * 1024 * 1024))
  [[ -n $(git ls-files | head -n 1) ]] || { verdict hygiene 1 "git lists no file"; return; }
  hits=$(git ls-files -- 'src/*' 'tests/*' 'bench/*' 'tools/*' 'scripts/*' "${prose_and_code[@]}" |
    grep -E '\.(h|cc|cu|cuh|py|sh)$' |
    while read -r file; do
      lines=$(wc -l <"$file")
      if ((lines > 500)) && ! head -n 5 "$file" | grep -q 'Long because'; then echo "$file: $lines lines without a reason at the top"; fi
    done)
  [[ -z $hits ]] || { echo "$hits"; status=1; }
  if git grep -nIE '(^|[^A-Za-z0-9_.])/(home|root|work|mnt|Users|data)/[A-Za-z0-9]' -- "${prose_and_code[@]}"; then
    echo "hygiene: paths of one machine (above)"
    status=1
  fi
  if git grep -nIE '\.\./shared' -- "${prose_and_code[@]}" ':!.ci/run'; then
    echo "hygiene: only .ci/run may look outside the checkout"
    status=1
  fi
  if git grep -nIwE 'TODO|FIXME|XXX|HACK' -- "${prose_and_code[@]}"; then
    echo "hygiene: unfinished work (above)"
    status=1
  fi
  hits=$(git ls-files '*.md' | while read -r file; do
    grep -oE '\]\([^)#: ]+' "$file" | cut -c3- | while read -r link; do
      [[ -e $(dirname "$file")/$link ]] || echo "$file: no file $link"
    done
  done)
  [[ -z $hits ]] || { echo "$hits"; status=1; }
  # As a disk counts them, in blocks of 4 KiB: a tree of many small files is larger than its bytes.
  bytes=$(git ls-files -z | xargs -0 stat --format=%s | awk '{ total += int(($1 + 4095) / 4096) * 4096 } END { print total }')
  if ((bytes >= limit)); then
    echo "hygiene: the tracked tree has $bytes bytes, the limit is $limit"
    status=1
  fi
  verdict hygiene $status "tree $((bytes / 1024 / 1024)) of 60 MiB"
}

check_tests() {
  local log=build/check/ctest.log exclude='^cuda$' note='' status counts
  mkdir -p build/check
  if command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; then
    exclude='^$'
  else
    note="; label cuda left out: $(ctest --test-dir build/release -N -L '^cuda$' | sed -n 's/^Total Tests: //p') programs, no device"
  fi
  ctest --test-dir build/release -j 2 -V --label-exclude "$exclude" >"$log" 2>&1
  status=$?
  ((status == 0)) || grep -E '\[  FAILED  \]|\*\*\*|^The following' "$log"
  counts=$(awk '
    /\[  PASSED  \] [0-9]+ test/ { for (i = 1; i < NF; i++) if ($i == "PASSED") passed += $(i + 2) }
    /\[  FAILED  \] [0-9]+ test.*listed below/ { for (i = 1; i < NF; i++) if ($i == "FAILED") failed += $(i + 2) }
    /\[  SKIPPED \] [0-9]+ test.*listed below/ { for (i = 1; i < NF; i++) if ($i == "SKIPPED") skipped += $(i + 2) }
    END { printf "%d passed, %d failed, %d skipped", passed, failed, skipped }' "$log")
  verdict tests $status "$counts$note"
}

# The stored texts follow one another, each under the command line that shows it.
check_help() {
  local stored=tests/cli/help.txt shown=build/check/help.txt status=0 headings heading
  mkdir -p build/check
  mapfile -t headings < <(grep '^\$ mere\.run ' "$stored")
  for heading in "${headings[@]}"; do
    echo "$heading"
    build/release/bin/mere.run ${heading#'$ mere.run '} || status=1
  done >"$shown"
  if [[ -z $update_help ]]; then
    diff -u --show-function-line='^\$ mere' "$stored" "$shown" || status=1
  elif ((status == 0)); then
    cp "$shown" "$stored"
  fi
  ((${#headings[@]})) || status=1
  verdict help $status "${#headings[@]} texts"
}

if [[ -n $hygiene ]]; then
  check_hygiene
  printf '%s\n' "${verdicts[@]}"
  exit $((failures > 0))
fi
ensure_packages clang-format clang-tidy git
check_format
check_hygiene
if [[ -n $build ]]; then
  ensure_packages "${MERERUN_PACKAGES[@]}"
  configure_preset release && build_preset release
  verdict build $? "preset release"
  check_tests
  check_help
fi
[[ -z $tidy ]] || check_tidy

printf '\n'
printf '%s\n' "${verdicts[@]}"
((failures == 0))
