#!/usr/bin/env bash
# On a host with a GPU: builds, then runs the kernels against the CPU, the models' references and
# bits on every device, the real processes with both models on the GPU, and the kernels under
# compute-sanitizer. usage: tests/gpu/run.sh [--no-sanitizer] [--no-build] [BUILD_DIR]
# --no-build takes what is in BUILD_DIR, for hosts that lack the packages it was built with.
set -euo pipefail
cd "$(dirname "$0")/../.."
sanitizer=yes
wants_build=yes
while [ $# -gt 0 ]; do
  case $1 in
    --no-sanitizer) sanitizer=no ;;
    --no-build) wants_build=no ;;
    --help)
      sed -n '2,5s/^# \{0,1\}//p' tests/gpu/run.sh
      exit
      ;;
    -*)
      sed -n '2,5s/^# \{0,1\}//p' tests/gpu/run.sh >&2
      exit 64
      ;;
    *) break ;;
  esac
  shift
done
build=${1:-build/release}
kernels="test_rows test_linear test_attention test_choose test_whole"
models="test_device test_model_golden test_model_exact"

if [ "$wants_build" = yes ]; then
  [ -f "$build/build.ninja" ] || cmake -G Ninja -S . -B "$build" -DCMAKE_BUILD_TYPE=Release \
    -DFORETOKEN_CUDA=ON
  cmake --build "$build" --target $kernels $models stress_whole test_e2e_lossless test_e2e_rules \
    foretoken-target foretoken-draft foretoken-coordinator
fi

export CK_DEFAULT_TIMEOUT=${CK_DEFAULT_TIMEOUT:-600}
for suite in $kernels; do # 77, skipped, is a failure here: this host was said to have a GPU
  "$build/tests/$suite"
done
# Grids that wait for their own blocks, of some processes: as they are, and through MPS.
stress() {
  "$build/bin/stress_whole" 15 1,5 && "$build/bin/stress_whole" 10 8,3,2 &&
    "$build/bin/stress_whole" 10 16,9,5 &&
    FORETOKEN_STRESS=seldom "$build/bin/stress_whole" 10 5,12
}
stress
if command -v nvidia-cuda-mps-control >/dev/null; then
  (
    CUDA_MPS_PIPE_DIRECTORY=$(mktemp -d)
    export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY=$CUDA_MPS_PIPE_DIRECTORY
    nvidia-cuda-mps-control -d
    status=0
    stress || status=$?
    echo quit | nvidia-cuda-mps-control
    exit $status
  )
else
  echo "no nvidia-cuda-mps-control: stress_whole was not run through MPS"
fi
for suite in $models; do
  "$build/tests/$suite" | tee "$build/gpu-suite.log"
  if grep -q 'skipped: cuda' "$build/gpu-suite.log"; then exit 1; fi
done
# Steps of few rows as one kernel, and by single ones; the bench pair where it is at hand.
for device in cuda cuda:single; do
  for case in lossless demo_pair ${FORETOKEN_BENCH_MODELS:+bench_pair}; do
    FORETOKEN_TEST_DEVICE=$device CK_RUN_CASE=$case "$build/tests/test_e2e_lossless"
  done
done
FORETOKEN_TEST_DEVICE=cuda FORETOKEN_TEST_DRAWS=256 "$build/tests/test_e2e_rules"

[ "$sanitizer" = yes ] || exit 0
for tool in memcheck racecheck; do
  for suite in $kernels; do
    CK_RUN_CASE=small compute-sanitizer --tool $tool --target-processes all --error-exitcode 99 \
      "$build/tests/$suite" | tee "$build/gpu-suite.log"
    if grep -qE 'SUMMARY: [1-9]' "$build/gpu-suite.log"; then exit 1; fi
  done
done
