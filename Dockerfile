# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT
#
# An image that runs the testbed's programs: nodes of the docker runtime, or the orchestrator.
#
#   docker build -t uav-sfl-testbed .
#   docker build --build-arg SET=light -t uav-sfl-testbed .    without torch, for workload.compute=none
#   testbed run SCENARIO --set emulation.runtime=docker --set emulation.docker_image=uav-sfl-testbed
#
# BASE may be any Debian with Python 3.11 or newer and its venv module.
ARG BASE=python:3.11-slim
FROM ${BASE}

# The ns-3 models are compiled on first use.
RUN command -v g++ >/dev/null || { \
        apt-get update && apt-get install -y --no-install-recommends g++ \
        && rm -rf /var/lib/apt/lists/*; \
    }

# Dependencies first: they change less often than the sources, and take minutes. Containers cannot
# keep what Python compiles, so that it is compiled here.
ARG SET=full
ENV PATH=/opt/testbed/bin:${PATH} PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY constraints constraints
RUN UV_CACHE_DIR=/tmp/uv UV_COMPILE_BYTECODE=1 \
        python3 constraints/install.py ${SET} --into /opt/testbed --packages-only \
    && rm -rf /tmp/uv

COPY pyproject.toml README.md ./
COPY LICENSES LICENSES
COPY testbed testbed
COPY ns3_scenarios ns3_scenarios
COPY workloads workloads
COPY orchestrator orchestrator
COPY scenarios scenarios
COPY campaigns campaigns
RUN pip install --no-cache-dir --no-deps --no-build-isolation .

WORKDIR /work
CMD ["testbed", "--help"]
