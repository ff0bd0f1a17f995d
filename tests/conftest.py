# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Which tests bear company, and which need a Docker daemon.

Files that keep the real clock or the kernel's links are marked `alone`: `suite.py` runs nothing
beside them. Tests marked `docker` need root and a Docker daemon, and in CI both must be there.
"""

import functools
import os
from pathlib import Path

import docker
import pytest

HERE = Path(__file__).parent
ALONE = (
    "orchestrator/campaign/test_campaign_run.py",
    "orchestrator/cli/test_cli.py",
    "orchestrator/emulation",
    "orchestrator/reporting/test_live.py",
    "orchestrator/reporting/test_report_browser.py",
    "orchestrator/runs",
    "orchestrator/studies/test_cross_check.py",
    "orchestrator/test_api.py",
    "repository/test_compose.py",
    "repository/test_doc_commands.py",
    "testbed/core/test_plugins.py",
    "testbed/host",
    "testbed/network",
    "testbed/runtimes",
    "testbed/system",
    "testbed/virtual",
    "workloads/nodes",
)
"""Files, and folders of files, whose tests are `alone`."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the file they stand in."""
    alone = tuple(HERE / name for name in ALONE)
    for item in items:
        if any(item.path.is_relative_to(place) for place in alone) or item.get_closest_marker(
            "docker"
        ):
            item.add_marker(pytest.mark.alone)


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
