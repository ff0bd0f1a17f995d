# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The data, weights and plug-ins that a run reads: their descriptions and digests."""

from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.emulated.learning import evaluates, few_samples
from orchestrator.records.manifest import plugins_of
from orchestrator.scenario.epochs import natural_clients, shares_of
from orchestrator.scenario.profiles import data_of, model_of
from orchestrator.scenario.schema import Scenario
from testbed.core.registry import MODELS
from testbed.system.files import content_digest
from testbed.system.folders import cache_folder
from workloads.data.digests import data_digests
from workloads.data.parts import FIELD
from workloads.learning.cached import backbone_file
from workloads.learning.examined import data_line
from workloads.learning.remarks import remarks_on
from workloads.models.config import named_files
from workloads.models.language import CONFIG, is_language, tokenizer_files


@dataclass(frozen=True)
class Inputs:
    """Files that a run reads in addition to its scenario."""

    data: str = ""
    """Description of the recognised data; empty for synthetic data, or without training."""
    remarks: list[str] = field(default_factory=list)
    """Remarks that the run must print about its weights before the first round, in lines."""
    digests: dict[str, dict[str, str]] = field(default_factory=dict)
    """By the scenario's key: SHA-256 of files or folders, by their names."""
    clients: list[str] = field(default_factory=list)
    """Names of the UAVs' natural clients; empty if the data are not divided by them."""


def inputs_of(scenario: Scenario) -> Inputs:
    """The inputs of a scenario's run, after their examination.

    Raises:
        InputError: The model, its weights or the data are unavailable or unfit.
    """
    if scenario.workload.compute == "none":
        return Inputs(digests=_plugin_digests(scenario))
    digests = _plugin_digests(scenario)
    model, data = model_of(scenario), data_of(scenario)
    sizes = scenario.workload.batch_size
    if 1 in (sizes if isinstance(sizes, list) else [sizes]):
        # torch is needed for this check only.
        from workloads.learning.model import SplitModel

        SplitModel(model).check_batch_size(1)
    remarks = remarks_on(model, backbone_file(model, cache_folder()))
    if (language := scenario.workload.language) is None:
        digests |= {"workload.parameters": named_files(model.parameters)}
    elif language.folder is not None:
        file = language.folder / CONFIG
        digests |= {"workload.model": {str(file): content_digest(file)}}
    if model.weights not in (None, "pretrained"):
        weights = Path(str(model.weights))
        digests |= {"workload.weights": {str(weights): content_digest(weights)}}
    owners = natural_clients(scenario)
    names = [] if owners is None else [owners.names[one] for one in owners.chosen]
    if owners is not None:
        remarks += [owners.line] * bool(owners.line)
        from workloads.data.samples import holdings  # Imports torch.

        held = [holdings(share) for share in shares_of(scenario)]
        line = few_samples(held, sizes, scenario.workload.sampling)
        remarks += [line] * bool(line)
    if data.source == "synthetic":
        return Inputs("", remarks, digests)
    has_texts = is_language(model.model) or model.model in MODELS.plugins
    digests[FIELD] = data_digests(Path(data.source).expanduser(), has_texts)
    if data.tokenizer not in (None, "bytes"):
        files = tokenizer_files(Path(str(data.tokenizer)))
        digests["workload.data.tokenizer"] = {str(file): content_digest(file) for file in files}
    found = digests[FIELD] | digests.get("workload.data.tokenizer", {})
    line = data_line(model, data, found, evaluates(scenario), cache_folder())
    return Inputs(line, remarks, digests, names)


def _plugin_digests(scenario: Scenario) -> dict[str, dict[str, str]]:
    """Digests of the packages of all plug-ins that the scenario names, by its keys."""
    return {
        group.key: {name: group.fingerprint(name)} for group, name in plugins_of(scenario).items()
    }
