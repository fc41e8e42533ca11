#!/usr/bin/env bash
# Builds a copy of the C kernel with gcc's sanitizers for addresses and undefined behaviour, and runs
# its tests and random calls with every build that this processor runs.
#
#     benchmarks/sanitize.sh [PYTHON [CASES]]
#
# It ends with an error at the first read past an allocation, signed overflow or wrong shift.
set -euo pipefail
python=$(command -v "${1:-python}") cases=${2:-5000}
cd "$(dirname "$0")/.."
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r setup.py pyproject.toml README.md LICENSE conftest.py src tests benchmarks "$copy"
cd "$copy"
rm -rf build src/qneurons/kernels/_native_*
CC=gcc CFLAGS="-fsanitize=address,undefined -fno-sanitize-recover=all -g" \
    "$python" setup.py -q build_ext --inplace
LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)"
# Python itself leaks a little. Torch's OpenMP threads are outside the sanitizers.
export LD_PRELOAD ASAN_OPTIONS=detect_leaks=0 PYTHONPATH=$copy/src
for build in portable avx2 avx512; do
    export QNEURONS_NATIVE=$build
    if ! "$python" -c "import qneurons.kernels.cpu" 2>/dev/null; then
        echo "$build: this processor does not run it"
        continue
    fi
    echo "$build"
    "$python" benchmarks/fuzz.py --cases "$cases" --backends cpu
    # A sanitizer maps more memory than the one test allows.
    "$python" -m pytest -q -p no:cacheprovider tests/kernels/test_cpu.py -k "not without_memory"
done
