# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The long description of the package: README.md with absolute links.

Everything else is in pyproject.toml. A package index shows the long description without the files
that the links of README.md lead to.
"""

import re
from pathlib import Path

from setuptools import setup

FILES = "https://github.com/uav-sfl/testbed/blob/HEAD/"
PICTURES = "https://raw.githubusercontent.com/uav-sfl/testbed/HEAD/"


def absolute(link: re.Match[str]) -> str:
    """A Markdown link or picture with an absolute address."""
    return f"{link[1]}{PICTURES if link[1].startswith('!') else FILES}{link[2]}"


text = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
setup(
    long_description=re.sub(r"(!?\[[^\]]*\]\()(?![a-z]+:|#)([^)\s]+)", absolute, text),
    long_description_content_type="text/markdown",
)
