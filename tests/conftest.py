"""Tests marked `docker` need root and a Docker daemon, and in CI both must be there."""

import functools
import os

import docker
import pytest


@functools.cache
def _missing() -> str:
    if os.geteuid() != 0:
        return "plugging links into containers needs root"
    try:
        client = docker.from_env()
        client.ping()
        client.close()
    except docker.errors.DockerException as error:
        return f"no Docker daemon answers: {error}"
    return ""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip such a test where something is missing; in CI, fail it."""
    if item.get_closest_marker("docker") and (why := _missing()):
        refuse = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        refuse(why)
