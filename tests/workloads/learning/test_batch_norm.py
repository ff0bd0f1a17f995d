# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Full training of a ResNet-18 by several clients equals a loop of PyTorch over whole networks, for
each choice of batch normalisation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import timm
import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.core.errors import InputError
from workloads.learning.backbone import load_model
from workloads.learning.cached import backbone_file
from workloads.learning.learner import ClientLearner, ServerLearner
from workloads.learning.model import SplitModel
from workloads.learning.settings import ModelConfig, TrainingConfig

RESNET = ModelConfig("resnet18", 10, image_size=64, adapters="full")
SMALL = replace(RESNET, model="resnet_nano_32", image_size=None)
CHOICES = ("averaged", "frozen", "local", "per-client")
SAMPLES = {1: 5, 2: 2, 3: 3}
BATCH, ITERATIONS, ROUNDS = 4, 2, 3
STEEP = TrainingConfig(learning_rate=0.01, optimiser="sgd")
EVALUATED = 6


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("backbone")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def split_model(config: ModelConfig, cache: Path) -> SplitModel:
    return load_model(config, backbone_file(config, cache))


def batch(client: int, round_: int, iteration: int, size: int) -> tuple[Tensor, Tensor]:
    """Samples whose mean and deviation differ from client to client, so that statistics do."""
    random = torch.Generator().manual_seed(100 * client + 10 * round_ + iteration)
    images = torch.randn(BATCH, 3, size, size, generator=random) * client + client - 2
    return images, torch.randint(10, (BATCH,), generator=random)


def held_out(size: int) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(9)
    return torch.randn(EVALUATED, 3, size, size, generator=random), torch.arange(EVALUATED)


@dataclass
class Trained:
    """What a training arrives at."""

    losses: list[float] = field(default_factory=list)
    state: dict[str, Tensor] = field(default_factory=dict)
    """The global model, and what stays with client K as `clients.K.NAME`."""
    evaluated: tuple[float, float] = (0.0, 0.0)


def train_split(
    model: SplitModel,
    split: int | Sequence[int],
    training: TrainingConfig = STEEP,
    rounds: int = ROUNDS,
    iterations: int = ITERATIONS,
) -> Trained:
    """Rounds of split training; a sequence has the split point of each round."""
    done, size = Trained(), model.input.size
    clients = {k: ClientLearner(model, training) for k in SAMPLES}
    server = ServerLearner(model, list(SAMPLES), training)
    for round_ in range(rounds):
        point = split if isinstance(split, int) else split[round_]
        broadcast = server.begin_round(point, round_)
        for client in clients.values():
            client.begin_round(point, broadcast, round_)
        for iteration in range(iterations):
            batches = {k: batch(k, round_, iteration, size) for k in SAMPLES}
            smashed = {k: clients[k].forward(batches[k][0], "a batch") for k in SAMPLES}
            for k in SAMPLES:
                step = server.forward_backward(k, smashed[k], batches[k][1], "a batch")
                clients[k].backward(step.gradient)
                done.losses.append(step.loss)
        server.aggregate({k: client.adapters() for k, client in clients.items()}, SAMPLES)
    for k, client in clients.items():
        server.load_own(k, client.own())
    done.state = {name: tensor.clone() for name, tensor in server.state().items()}
    done.evaluated = server.evaluate(*held_out(size))
    return done


def plain_net(config: ModelConfig, model: SplitModel, cache: Path) -> nn.Module:
    """timm's network with the weights of the backbone and the head of the first round."""
    if config.model == "resnet18":
        net = timm.create_model("resnet18", num_classes=10)
    else:
        from timm.models.resnet import ResNet

        from workloads.models.families import OWN_MODELS

        net = ResNet(**OWN_MODELS[config.model], num_classes=10)
    net.load_state_dict(safetensors.torch.load_file(backbone_file(config, cache)), strict=False)
    start = ServerLearner(model, [1], STEEP).state()
    net.load_state_dict({n: start[n] for n in model.head_shapes}, strict=False)
    return net  # type: ignore[no-any-return]


def train_plain(
    net: nn.Module,
    choice: str,
    size: int,
    training: TrainingConfig = STEEP,
    rounds: int = ROUNDS,
    iterations: int = ITERATIONS,
) -> Trained:
    """Federated averaging of whole networks, with PyTorch's own layers, and no split anywhere."""
    done, total = Trained(), sum(SAMPLES.values())
    norms = [n for n, m in net.named_modules() if isinstance(m, nn.BatchNorm2d)]
    statistics = {f"{n}.{own}" for n in norms for own in ("running_mean", "running_var")}
    affine = {f"{n}.{own}" for n in norms for own in ("weight", "bias")}
    stays = {"local": statistics | affine, "per-client": statistics}.get(choice, set())

    def values() -> dict[str, Tensor]:
        tensors = net.state_dict().items()
        return {n: t.detach().clone() for n, t in tensors if not n.endswith("num_batches_tracked")}

    world = values()
    own = {k: {n: world[n] for n in stays} for k in SAMPLES}
    losses: dict[tuple[int, int, int], float] = {}
    for round_ in range(rounds):
        ends = {}
        for k in SAMPLES:
            net.load_state_dict(world | own[k], strict=False)
            net.train(choice != "frozen")
            optimiser = torch.optim.SGD(
                net.parameters(), training.learning_rate, momentum=training.momentum
            )
            for iteration in range(iterations):
                images, labels = batch(k, round_, iteration, size)
                optimiser.zero_grad()
                loss = functional.cross_entropy(net(images), labels)
                loss.backward()
                optimiser.step()
                losses[round_, iteration, k] = float(loss.detach())
            ends[k] = values()
            own[k] = {n: ends[k][n] for n in stays}
        world = {
            n: sum(SAMPLES[k] / total * ends[k][n].double() for k in SAMPLES).float() for n in world
        }
    done.losses = [losses[key] for key in sorted(losses)]
    done.state = {n: t for n, t in world.items() if n not in stays}
    done.state |= {f"clients.{k}.{n}": t for k in SAMPLES for n, t in own[k].items()}
    found = []
    images, labels = held_out(size)
    for k in SAMPLES if stays else [1]:
        net.load_state_dict(world | own[k], strict=False)
        logits = net.eval()(images)
        hits = (logits.argmax(1) == labels).float().mean()
        found.append((float(functional.cross_entropy(logits, labels).detach()), float(hits)))
    done.evaluated = (
        sum(loss for loss, _ in found) / len(found),
        sum(hits for _, hits in found) / len(found),
    )
    return done


def assert_equal(split: Trained, plain: Trained, frozen: bool = False) -> None:
    """The same to 1e-6 of the largest value of a tensor."""
    expected = {n: t for n, t in plain.state.items() if not (frozen and ".running_" in f".{n}")}
    assert split.state.keys() == expected.keys()
    assert split.losses == pytest.approx(plain.losses, rel=1e-6, abs=1e-6)
    for name, tensor in expected.items():
        difference = (split.state[name] - tensor).abs().max()
        assert difference <= 1e-6 * max(1.0, float(tensor.abs().max())), name
    assert split.evaluated == pytest.approx(plain.evaluated, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    "choice", ["local", *(pytest.param(c, marks=pytest.mark.full) for c in CHOICES if c != "local")]
)
def test_resnet_18_trains_as_whole_networks_do(choice: Any, cache: Path) -> None:
    """Three clients, three rounds, split at two points."""
    config = replace(RESNET, batch_norm=choice)
    model = split_model(config, cache)
    plain = train_plain(plain_net(config, model, cache), choice, 64)
    assert len(set(plain.losses)) == len(plain.losses)
    for split in (1, 3):
        assert_equal(train_split(model, split), plain, choice == "frozen")


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("recompute", [pytest.param(False, marks=pytest.mark.full), True])
def test_every_split_of_a_small_one_does(choice: Any, recompute: bool, cache: Path) -> None:
    """Recomputation must not update statistics twice."""
    config = replace(SMALL, batch_norm=choice)
    model = split_model(config, cache)
    plain = train_plain(plain_net(config, model, cache), choice, 32)
    for split in (1, 2, 3, 4):
        trained = train_split(model, split, replace(STEEP, recompute=recompute))
        assert_equal(trained, plain, choice == "frozen")


@pytest.mark.parametrize("choice", ["averaged", "frozen"])
def test_the_split_may_change_between_rounds(choice: Any, cache: Path) -> None:
    model = split_model(replace(SMALL, batch_norm=choice), cache)
    one, other = train_split(model, 2), train_split(model, [4, 1, 2])
    assert one.losses == other.losses
    assert all(torch.equal(tensor, other.state[name]) for name, tensor in one.state.items())


def test_what_stays_with_clients_is_in_no_broadcast(cache: Path) -> None:
    sizes = {}
    for choice in CHOICES:
        model = split_model(replace(SMALL, batch_norm=choice), cache)
        names = {entry.name for entry in model.layout.entries}
        own = {entry.name for entry in model.own.entries}
        assert ("bn1.running_mean" in names) == (choice == "averaged")
        assert ("bn1.weight" in names) == (choice != "local")
        assert ("bn1.running_var" in own) == (choice in ("local", "per-client"))
        assert ("bn1.weight" in own) == (choice == "local")
        sizes[choice] = model.layout.cuts[2]
    norms = 2 * (64 + 2 * 16 + 16 + 2 * 32 + 32)
    """Values of weight and bias, or of both statistics, in the first two parts."""
    assert sizes["averaged"] == sizes["frozen"] + norms
    assert sizes["per-client"] == sizes["frozen"] == sizes["local"] + norms


@pytest.mark.parametrize("choice", ["local", "per-client"])
def test_a_state_restores_what_stays_with_clients(choice: Any, cache: Path) -> None:
    from workloads.learning.learner import own_tensors

    model = split_model(replace(SMALL, batch_norm=choice), cache)
    state = train_split(model, 2).state
    server, client = ServerLearner(model, list(SAMPLES), STEEP), ClientLearner(model, STEEP)
    server.load_state(state)
    again = server.state()
    assert again.keys() == state.keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in state.items())
    client.begin_round(2, server.begin_round(2))
    client.load_own(own_tensors(state, 3))
    for name, tensor in client.own().items():
        assert torch.equal(tensor, state[f"clients.3.{name}"]), name
    with pytest.raises(InputError, match=r"^adapters: nothing of a client does not fit"):
        client.load_own({"nothing": torch.zeros(1)})


@pytest.mark.parametrize("rule", ["fedavgm", "fedadam", "svd"])
def test_rules_are_for_parameters_and_statistics_have_means(rule: str, cache: Path) -> None:
    adapters: Any = "lora" if rule == "svd" else "full"
    model = split_model(replace(SMALL, adapters=adapters, rank=4), cache)
    half = {"learning_rate": 0.5} if rule == "fedavgm" else {}
    mean, other = (
        train_split(
            model,
            2,
            replace(STEEP, aggregation=name, aggregation_parameters=given),
            rounds=1,
        ).state
        for name, given in (("fedavg", {}), (rule, half))
    )
    statistics = [name for name in mean if ".running_" in f".{name}"]
    assert all(torch.equal(mean[name], other[name]) for name in statistics)
    differs = [name for name in mean if not torch.equal(mean[name], other[name])]
    assert ("conv1.lora_B" if rule == "svd" else "conv1.weight") in differs
    if rule != "svd":
        assert other["aggregation." + ("first" if rule == "fedadam" else "velocity")].shape == (
            sum(t.numel() for n, t in mean.items() if n not in statistics),
        )


def test_statistics_have_no_decay_and_no_proximal_term(cache: Path) -> None:
    """An optimiser that changed them would move them with a learning rate of any size."""
    model = split_model(SMALL, cache)
    states = [
        train_split(model, 2, replace(training, learning_rate=1e-30), rounds=1).state
        for training in (
            STEEP,
            replace(STEEP, weight_decay=0.5),
            replace(STEEP, aggregation="fedprox", aggregation_parameters={"mu": 10.0}),
            TrainingConfig(weight_decay=0.5),
        )
    ]
    for other in states[1:]:
        for name, tensor in states[0].items():
            torch.testing.assert_close(other[name], tensor, rtol=1e-6, atol=1e-7)


def test_asynchronous_updates_mix_statistics(cache: Path) -> None:
    model = split_model(SMALL, cache)
    training = replace(STEEP, asynchronous={"mixing": 0.25, "staleness": "constant"})
    client, server = ClientLearner(model, training), ServerLearner(model, [1], training)
    before = {name: tensor.clone() for name, tensor in server.state().items()}
    server.begin_round(2)
    client.begin_round(2, server.begin_update(1))
    images, labels = batch(1, 0, 0, 32)
    client.backward(server.forward_backward(1, client.forward(images), labels).gradient)
    trained = model.layout.views(client.adapters())
    server.mix(1, client.adapters(), 0)
    for name in ("bn1.running_var", "conv1.weight"):
        expected = 0.75 * before[name] + 0.25 * trained[name]
        torch.testing.assert_close(server.state()[name], expected)
        assert not torch.equal(trained[name], before[name])


def test_a_client_without_anything_to_train_takes_part(cache: Path) -> None:
    """The head alone is trained, as in an unsplit network whose other parameters are frozen."""
    config = ModelConfig("vit_nano_patch8_64", 10, adapters="none")
    model = split_model(config, cache)
    assert model.layout.cuts == (0,) * 7
    assert model.layout.header(3)[8:].strip() == b"{}"
    trained = train_split(model, 3)
    client, server = ClientLearner(model, STEEP), ServerLearner(model, [1], STEEP)
    client.begin_round(3, server.begin_round(3))
    assert client.adapters().numel() == 0
    assert trained.losses[0] != trained.losses[6]
    assert trained.state.keys() == {"head.weight", "head.bias"}
    from timm.models.vision_transformer import VisionTransformer

    from workloads.models.families import OWN_MODELS

    net = VisionTransformer(**OWN_MODELS[config.model], num_classes=10).eval()
    file = backbone_file(config, cache)
    net.load_state_dict(safetensors.torch.load_file(file), strict=False)
    start = server.state()
    world = {n: start[n].clone() for n in trained.state}
    for round_ in range(ROUNDS):
        ends = []
        for k in SAMPLES:
            net.load_state_dict(world, strict=False)
            optimiser = torch.optim.SGD(net.head.parameters(), 0.01, momentum=0.9)
            for iteration in range(ITERATIONS):
                images, labels = batch(k, round_, iteration, 64)
                optimiser.zero_grad()
                functional.cross_entropy(net(images), labels).backward()
                optimiser.step()
            ends.append({n: net.state_dict()[n].clone() for n in world})
        world = {
            n: sum(e[n] * s / 10 for e, s in zip(ends, SAMPLES.values(), strict=True))
            for n in world
        }
    for name, tensor in world.items():
        assert (trained.state[name] - tensor).abs().max() < 1e-6, name


def reference_step(
    net: nn.Module, batches: Sequence[tuple[Tensor, Tensor]], training: TrainingConfig, round_: int
) -> Mapping[str, Tensor]:
    """Training of a whole network with accumulated, then clipped gradients."""
    rate = training.learning_rate * training.factor(round_)
    optimiser = torch.optim.SGD(net.parameters(), rate, momentum=training.momentum)
    for index, (images, labels) in enumerate(batches, start=1):
        functional.cross_entropy(net(images), labels).backward()
        left = index % training.accumulate
        if left == 0 or index == len(batches):
            for parameter in net.parameters():
                assert parameter.grad is not None
                parameter.grad /= left or training.accumulate
            optimiser.step()
            optimiser.zero_grad()
    return net.state_dict()


def test_gradients_accumulate_and_a_round_ends_with_a_step(cache: Path) -> None:
    config = replace(SMALL, batch_norm="frozen")
    model = split_model(config, cache)
    training = replace(STEEP, accumulate=2, momentum=0.5, schedule="linear", rounds=4)
    client, server = ClientLearner(model, training), ServerLearner(model, [1], training)
    batches = [batch(1, 0, iteration, 32) for iteration in range(3)]
    client.begin_round(2, server.begin_round(2, 1), 1)
    for images, labels in batches:
        client.backward(server.forward_backward(1, client.forward(images), labels).gradient)
    server.aggregate({1: client.adapters()}, {1: 1})
    net = plain_net(config, model, cache).eval()
    for name, tensor in reference_step(net, batches, training, 1).items():
        if name in server.state():
            assert (server.state()[name] - tensor).abs().max() < 1e-6, name


def test_each_side_clips_its_own_gradient(cache: Path) -> None:
    config = replace(SMALL, batch_norm="frozen")
    model = split_model(config, cache)
    training = replace(STEEP, clip_norm=1e-3, momentum=0.0)
    client, server = ClientLearner(model, training), ServerLearner(model, [1], training)
    before = {name: tensor.clone() for name, tensor in server.state().items()}
    client.begin_round(2, server.begin_round(2))
    images, labels = batch(1, 0, 0, 32)
    client.backward(server.forward_backward(1, client.forward(images), labels).gradient)
    server.aggregate({1: client.adapters()}, {1: 1})
    after, cut = server.state(), model.layout.cuts[2]
    moved = torch.cat([(after[n] - before[n]).flatten() for n in before])
    for side in (moved[:cut], moved[cut:]):
        assert float(side.double().norm()) == pytest.approx(0.01 * 1e-3, rel=1e-2)


def test_schedules_are_torchs() -> None:
    parameter = [nn.Parameter(torch.zeros(1))]
    kinds: dict[Any, Any] = {
        "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 8, eta_min=0.2),
        "linear": lambda o: torch.optim.lr_scheduler.LinearLR(o, 1.0, 0.2, 8),
        "step": lambda o: torch.optim.lr_scheduler.StepLR(o, 3, 0.5),
        "constant": lambda o: torch.optim.lr_scheduler.ConstantLR(o, 1.0),
    }
    for kind, make in kinds.items():
        optimiser = torch.optim.SGD(parameter, 1.0)
        scheduler = make(optimiser)
        ours = TrainingConfig(
            schedule=kind, warmup=2, rounds=10, step_rounds=3, decay=0.5, last=0.2
        )
        assert [ours.factor(r) for r in (0, 1)] == [1 / 3, 2 / 3]
        for round_ in range(2, 10):
            assert ours.factor(round_) == pytest.approx(scheduler.get_last_lr()[0], rel=1e-9)
            optimiser.step()
            scheduler.step()


@pytest.mark.parametrize(
    ("config", "what"),
    [
        (SMALL, "all parameters are trained"),
        (replace(SMALL, adapters="none"), "resnet_nano_32 has batch normalisation"),
        (ModelConfig("convnext_atto", 10, image_size=32), "convolutions of convnext_atto have"),
    ],
)
def test_one_pass_for_many_clients_is_refused(config: ModelConfig, what: str, cache: Path) -> None:
    server = ServerLearner(split_model(config, cache), [1, 2], STEEP)
    with pytest.raises(InputError, match=rf"^workload\.clients_per_pass: must be 1, .*{what}"):
        server.check_together()


def test_parameters_of_two_parts_cannot_be_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    from workloads.models.families import OWN_MODELS

    shared = OWN_MODELS["beit_nano_patch8_64"] | {
        "use_rel_pos_bias": False,
        "use_shared_rel_pos_bias": True,
    }
    monkeypatch.setitem(OWN_MODELS, "beit_nano_patch8_64", shared)
    with pytest.raises(
        InputError, match=r"^workload\.adapters: 'full' needs .* rel_pos_bias\..* another part"
    ):
        SplitModel(ModelConfig("beit_nano_patch8_64", 10, adapters="full"))


def test_a_single_value_cannot_be_normalised() -> None:
    model = SplitModel(SMALL)
    model.check_batch_size(2)
    with pytest.raises(InputError, match=r"^workload\.batch_size: must be 2 or more, .*layer4\.0"):
        model.check_batch_size(1)
    SplitModel(replace(SMALL, batch_norm="frozen")).check_batch_size(1)
    SplitModel(replace(SMALL, image_size=64)).check_batch_size(1)


def test_weights_bring_their_statistics(cache: Path, tmp_path: Path) -> None:
    tensors = safetensors.torch.load_file(backbone_file(SMALL, cache))
    tensors["bn1.running_var"] = torch.full((64,), 2.0)
    tensors["bn1.num_batches_tracked"] = torch.tensor(77)
    file = tmp_path / "weights.safetensors"
    safetensors.torch.save_file(tensors, file)
    config = replace(SMALL, weights=str(file))
    state = ServerLearner(split_model(config, cache), [1], STEEP).state()
    assert torch.equal(state["bn1.running_var"], tensors["bn1.running_var"])
    assert torch.equal(state["conv1.weight"], tensors["conv1.weight"])
    frozen = split_model(replace(config, batch_norm="frozen"), cache)
    assert torch.equal(frozen.net.bn1.running_var, tensors["bn1.running_var"])
    tensors["bn1.running_var"][3] = -1.0
    safetensors.torch.save_file(tensors, file)
    with pytest.raises(InputError, match=r"^workload\.weights: bn1\.running_var .* negative"):
        backbone_file(config, cache)
    del tensors["bn1.running_var"]
    safetensors.torch.save_file(tensors, file)
    with pytest.raises(InputError, match=r"^workload\.weights: .* needs bn1\.running_var"):
        backbone_file(config, cache)
