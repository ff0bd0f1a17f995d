# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT
#
# An image that contains the testbed: for commands, for nodes of the docker runtime, and for the
# services of compose.yaml. See docs/docker.md.
#
#   docker build -t uav-sfl-testbed .
#
# BASE: image of Debian with Python 3.11 to 3.13 and its venv module
# SET: packages to install: full, or light (no PyTorch, for workload.compute=none)
# VERSION: version of the testbed; the sources in the image have no Git history to take it from
ARG BASE=python:3.11-slim
FROM ${BASE}

LABEL org.opencontainers.image.title="UAV-SFL testbed" \
      org.opencontainers.image.description="Network-emulation testbed for split federated learning over UAV networks" \
      org.opencontainers.image.source="https://github.com/uav-sfl/testbed" \
      org.opencontainers.image.documentation="https://github.com/uav-sfl/testbed/blob/HEAD/docs/docker.md" \
      org.opencontainers.image.licenses="MIT AND GPL-2.0-only"

# The ns-3 models are compiled with g++.
RUN command -v g++ >/dev/null || { \
        apt-get update && apt-get install -y --no-install-recommends g++ \
        && rm -rf /var/lib/apt/lists/*; \
    }

# Dependencies first: they change less often than the sources, and take minutes. Containers cannot
# keep what Python compiles. Therefore it is compiled here.
ARG SET=full
ENV PATH=/opt/testbed/bin:${PATH} PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY constraints constraints
RUN UV_CACHE_DIR=/tmp/uv UV_COMPILE_BYTECODE=1 \
        python3 constraints/install.py ${SET} --into /opt/testbed --packages-only \
    && rm -rf /tmp/uv

COPY pyproject.toml setup.py README.md ./
COPY LICENSE ./
COPY LICENSES LICENSES
COPY testbed testbed
COPY ns3_scenarios ns3_scenarios
COPY workloads workloads
COPY orchestrator orchestrator
COPY scenarios scenarios
COPY campaigns campaigns
ARG VERSION=
LABEL org.opencontainers.image.version="${VERSION}"
RUN SETUPTOOLS_SCM_PRETEND_VERSION=${VERSION} \
        pip install --no-cache-dir --no-deps --no-build-isolation .

# All users share the compiled ns-3 models and the compiled engine, also with a read-only root.
RUN export XDG_CACHE_HOME=/opt/testbed/share \
    && python -m orchestrator.engine.prepared \
    && chmod -R a+rX /opt/testbed/share

RUN useradd --create-home testbed && install -d -o testbed -g testbed /work && install -d -m 1777 /key
# A volume can be written with a read-only root, too.
VOLUME /tmp
ENV MPLCONFIGDIR=/tmp/matplotlib
USER testbed
WORKDIR /work
CMD ["testbed", "--help"]
