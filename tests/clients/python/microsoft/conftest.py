"""These clients need no MCP server, and the package that makes one does not fit beside them."""

import pytest


@pytest.fixture(scope="session")
def mcp():
    return None
