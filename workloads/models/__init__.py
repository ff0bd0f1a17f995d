# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Networks that can be split.

Model families of timm, language models of transformers, and models of other packages as chains;
`workloads.learning` trains them.
"""
