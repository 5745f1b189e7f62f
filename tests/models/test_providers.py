from __future__ import annotations

import pytest

from heavydistill.models.profiles import PROVIDERS, provider_at


def test_each_provider_is_found_by_its_own_address():
    for name, provider in PROVIDERS.items():
        assert provider_at(provider.base_url) == name
        assert provider_at(f"{provider.base_url}/") == name
        assert provider.key_env.isupper()


@pytest.mark.parametrize(
    "url", ["http://localhost:8000/v1", "https://openrouter.ai.example.org/v1", "openrouter.ai"]
)
def test_any_other_server_is_ones_own(url):
    assert provider_at(url) is None
