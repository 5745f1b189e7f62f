#!/usr/bin/env bash
# Clients of a service that others write, in an environment of their own, .venv-clients: LiteLLM and
# inspect_ai, whose dependencies are none of heavydistill's.
#
#   bash scripts/install_clients.sh
#
# For tests/serve/test_real_clients.py, which is skipped without them.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

venv="$root/.venv-clients"
install_once clients scripts/install_clients.sh \
  install_by uv litellm==1.110.2 inspect-ai==0.3.285 openai==3.57.0
