# An image that runs the testbed's programs: nodes of the docker runtime, or the orchestrator.
#
#   docker build -t uav-sfl-testbed .
#   testbed run SCENARIO --set emulation.runtime=docker --set emulation.docker_image=uav-sfl-testbed
#
# BASE may be any Debian with Python 3.11 or newer and its venv module.
ARG BASE=python:3.11-slim
FROM ${BASE}

# ns-3's bindings are compiled when installed, its models on first use.
RUN has_headers='import pathlib, sysconfig as s; pathlib.Path(s.get_path("include"), "Python.h").stat()'; \
    missing=$(command -v g++ >/dev/null || echo g++; \
              python3 -c "$has_headers" 2>/dev/null || echo python3-dev); \
    test -z "$missing" || { \
        apt-get update && apt-get install -y --no-install-recommends $missing \
        && rm -rf /var/lib/apt/lists/*; \
    }

ENV PATH=/opt/testbed/bin:${PATH} PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv /opt/testbed

# Dependencies first: they change less often than the sources, and take minutes.
WORKDIR /src
COPY constraints.txt ./
RUN pip install --no-cache-dir --require-hashes --no-deps -r constraints.txt

COPY pyproject.toml README.md ./
COPY testbed testbed
COPY ns3_scenarios ns3_scenarios
COPY workloads workloads
COPY orchestrator orchestrator
COPY scenarios scenarios
COPY campaigns campaigns
RUN pip install --no-cache-dir --no-deps --no-build-isolation .

WORKDIR /work
CMD ["testbed", "--help"]
