# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Networks that can be split.

The package represents model families from timm, language models from transformers, and models from
other packages as chains. `workloads.learning` trains them.
"""
