#!/usr/bin/env bash
# Everything that only a GPU can show: tests marked `gpu`, then every figure beside its peak and
# goal. Exit code 0: all of it passes; 1: something does not; 77: there is no GPU, nothing was run.
set -uo pipefail
cd "$(dirname "$0")/.."

if ! { command -v nvidia-smi && nvidia-smi -L; } >/dev/null 2>&1; then
  echo "tests/gpu.sh: no GPU here (nvidia-smi names none): nothing was run"
  exit 77
fi
if [ -n "${KVCLI_PYTHON:-}" ]; then
  python=$KVCLI_PYTHON # an environment that has everything already
else
  make --no-print-directory setup model || exit 1
  python=.venv/bin/python
fi
export KVCLI_CACHE_DIR="${KVCLI_CACHE_DIR:-$("$python" -m kvcli.models cache-dir)}"
export PYTHONPATH=. TRITON_INTERPRET=0 HF_HUB_OFFLINE=1
"$python" -m tests.bench.gpu_table --check || exit

began=$SECONDS
failed=0
timeout 150 "$python" -m pytest -q -m gpu tests/{gpu,kernels,e2e,unit/cli} || failed=1
tested=$SECONDS
timeout 150 "$python" -m tests.bench.gpu_table "$@" || failed=1
echo "tests: $((tested - began)) s, figures: $((SECONDS - tested)) s"
exit $failed
