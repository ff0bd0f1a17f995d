# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A model is made without PyTorch's compiler, which can be imported later."""

import subprocess
import sys

PROGRAM = """
import sys
import torch
from workloads.learning.model import SplitModel
from workloads.learning.settings import ModelConfig
from workloads.models.uncompiled import without_compiler
disable = torch.compiler.disable
SplitModel(ModelConfig(model="swin_nano_patch4_window4_64", classes=10))
values = torch.zeros(2, requires_grad=True)
values.grad = torch.ones(2)
with without_compiler():
    torch.optim.SGD([values], 0.1).step()
print("torch._dynamo" in sys.modules, values.tolist())
with without_compiler():
    import torch._dynamo
    print(torch._dynamo.config.__name__)
print(torch.compiler.disable is disable, sys.modules["torch._dynamo"].__file__ is not None)
"""


def test_the_compiler_is_imported_by_those_who_need_it_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == [
        "False [-0.10000000149011612, -0.10000000149011612]",
        "torch._dynamo.config",
        "True True",
    ], done.stderr
