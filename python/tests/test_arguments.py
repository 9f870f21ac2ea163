"""What a strategy is made of: what has no sense is refused by name, what may be a mistake is warned of."""

import pytest
import torch
from torch import nn

import prunex
from training import OPTIMIZERS, admm, batch, diloco, small_network, train_step


@pytest.mark.parametrize("options, message", [
    ({"payload": "int3"}, "`payload`: got 'int3', wanted one of fp32"),
    ({"paylod": "int2"}, "`paylod`: no option of a strategy; did you mean 'payload'"),
    ({"sync_every": 0}, "`sync_every`: got 0, wanted 1 or more"),
    ({"sync_every": 2.0}, "`sync_every`: got 2.0, wanted a whole number, 1 or more"),
    ({"total_steps": True}, "`total_steps`: got True, wanted a whole number, 1 or more"),
    ({"payload": None}, "`payload`: got None, wanted a word, a number"),
    ({"timeout": 0}, "`timeout`: got 0, wanted seconds above 0"),
    ({"timeout": float("inf")}, "`timeout`: got inf, wanted seconds above 0"),
    ({"timeout": "soon"}, "`timeout`: got 'soon', wanted seconds above 0"),
    ({"outer_momentum": 1.5}, "`outer_momentum`: got 1.5"),
    ({"kappa": 0.3}, "`kappa`: diloco has no duals"),
    ({"groups": "coupled", "example": torch.zeros(1, 3, 8, 8), "total_steps": 100, "mask_importance": "taylor"},
     "`mask_importance`: got taylor, which looks at images"),
    ({"importance_samples": 9}, "`importance_samples`: no option of a strategy"),
    ({"groups": "coupled"}, "`example`: got none"),
    ({"groups": "coupled", "example": torch.zeros(1, 3, 8, 8)}, "`total_steps`: got none"),
    ({"total_steps": 0}, "`total_steps`: got 0"),
    ({"overlap": 2}, "`overlap`: wants `total_steps`"),
    ({"learning_rate": 0.1}, "`learning_rate`: diloco has no pull"),
    ({"example": torch.zeros(1, 3, 8, 8), "total_steps": 100}, "`example`: diloco masks nothing without `groups`"),
    ({"example": torch.zeros(1, 3, 8, 8), "groups": "none"}, "`example`: diloco masks nothing with `groups` none"),
    ({"prune_to": "macs=0.5"}, "`prune_to`: no option of a strategy"),
    ({"local_after": 2}, "`local_after`: no option of a strategy"),
    ({"in_node": "gradients"}, "`in_node`: no option of a strategy"),
    ({"ranks_per_node": 2}, "`ranks_per_node`: got 2, this process is alone"),
    ({"example": torch.zeros(1, 2, 8, 8), "groups": "coupled", "total_steps": 100}, "`model`: torch.export cannot"),
])
def test_options_without_sense_are_refused_by_name(options, message):
    with pytest.raises(ValueError) as error:
        diloco(**options)
    assert message in str(error.value)


def test_without_duals_there_is_no_pull():
    net = small_network()
    with pytest.raises(ValueError, match="`learning_rate`: hsadmm has no pull that follows it"):
        admm(net, OPTIMIZERS["sgd"](net.parameters()), kappa=0, learning_rate=0.1)
    admm(net, torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, dampening=0.1), kappa=0)


class Wrapping(torch.optim.Optimizer):
    """As accelerate's."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    @property
    def param_groups(self):
        return self.optimizer.param_groups


class Sharpness(torch.optim.Optimizer):
    """As those of SAM."""

    def __init__(self, params):
        super().__init__(params, {})
        self.base = torch.optim.SGD(self.param_groups, 0.1, momentum=0.9)
        self.param_groups = self.base.param_groups

    def step(self, closure=None):
        self.base.step()


class Chained(torch.optim.Optimizer):
    """One for each layer, as Megatron's."""

    def __init__(self, net):
        super().__init__(net.parameters(), {"lr": 0.1})
        self.chain = {"of": [torch.optim.SGD(layer.parameters(), 0.1) for layer in net if list(layer.parameters())]}


def test_optimizers_around_others_are_refused_where_they_would_not_follow():
    net = small_network()
    with pytest.raises(ValueError, match="`optimizer`: got a Wrapping that wraps another, wanted the one in it"):
        prunex.DiLoCo(net, Wrapping(OPTIMIZERS["sgd"](net.parameters())))
    prunex.DiLoCo(net, Sharpness(net.parameters()))
    with pytest.raises(ValueError, match="`optimizer`: got a Sharpness, whose `base` keeps states of its own"):
        admm(net, Sharpness(net.parameters()))
    prunex.DiLoCo(net, Chained(net))
    with pytest.raises(ValueError, match="`optimizer`: got a Chained, whose `chain` keeps states of its own"):
        admm(net, Chained(net))
    with pytest.raises(ValueError, match="`optimizer`: got a Sharpness, whose `base` keeps states of its own"):
        prunex.prune(net, batch(0, 0)[0], ratio=0.5, optimizer=Sharpness(net.parameters()))


def test_messages_have_the_names_of_the_loop():
    net = small_network()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with pytest.raises(ValueError, match="`overlap`.*`sync_every`"):
        prunex.LocalSGD(net, optimizer, 10, total_steps=100, overlap=12)


def test_what_never_begins_in_a_loop_is_refused():
    net = small_network()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with pytest.raises(ValueError, match="`outer_from`: got 100, wanted at most 4, the last exchange"):
        prunex.DiLoCo(net, optimizer, 5, total_steps=20, outer_from=100)
    with pytest.raises(ValueError, match="`overlap`: got 2, but the first exchange of weights, 1, is waited for"):
        prunex.DiLoCo(net, optimizer, 5, total_steps=10, overlap=2)


def test_what_has_no_effect_on_one_rank_is_no_error_in_a_loop():
    net = small_network()
    prunex.DiLoCo(net, torch.optim.SGD(net.parameters(), 0.1), payload="int2", exchange="leader")


def test_an_exchange_without_masks_has_none_that_are_final():
    net = small_network()
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    with prunex.LocalSGD(net, optimizer, 1) as training:
        train_step(net, optimizer, 0, 1)
        assert not training.exchange.frozen and "final" not in repr(training.exchange)


def test_what_cannot_be_trained_is_refused():
    net = small_network()
    with pytest.raises(ValueError, match="`optimizer`: got an empty list, wanted a torch.optim.Optimizer, or several"):
        prunex.DiLoCo(net, [])
    with pytest.raises(ValueError, match="`optimizer`: several move 0.weight, wanted each parameter in one of them"):
        prunex.DiLoCo(net, [OPTIMIZERS["sgd"](net.parameters()), OPTIMIZERS["adamw"](net.parameters())])
    with pytest.raises(ValueError, match="`model`: got a function, wanted a torch.nn.Module"):
        prunex.DiLoCo(batch, OPTIMIZERS["sgd"](net.parameters()))
    with pytest.raises(ValueError, match="`optimizer`: it moves no parameter of the model"):
        prunex.DiLoCo(net, OPTIMIZERS["sgd"](small_network().parameters()))
    half = small_network(torch.bfloat16)
    with pytest.raises(ValueError, match="0.weight is torch.bfloat16, wanted torch.float32"):
        prunex.DiLoCo(half, OPTIMIZERS["sgd"](half.parameters()))
    for name, buffer, message in [("low", torch.ones(4).bfloat16(), "low is torch.bfloat16, wanted torch.float32"),
                                  ("wide", torch.ones(1).expand(4), "wide is an expanded view"),
                                  ("away", torch.ones(4, device="meta"), "away is on meta, wanted .* as 0.weight is")]:
        other = small_network()
        other.register_buffer(name, buffer)
        with pytest.raises(ValueError, match=message):
            prunex.DiLoCo(other, OPTIMIZERS["sgd"](other.parameters()))
    with pytest.raises(ValueError, match="`example`: got none"):
        prunex.HSADMM(net, OPTIMIZERS["sgd"](net.parameters()))
    for p in net.parameters():
        p.requires_grad_(False)
    with pytest.raises(ValueError, match="no parameter requires gradients"):
        prunex.LocalSGD(net, OPTIMIZERS["sgd"](net.parameters()))


def test_parameters_whose_rows_are_spread_are_refused():
    net = nn.Linear(4, 6)
    net.weight = nn.Parameter(torch.randn(4, 6).t())
    with pytest.raises(ValueError, match="`model`: weight is a transposed or sliced view"):
        prunex.LocalSGD(net, OPTIMIZERS["sgd"](net.parameters()))
    net = small_network().to(memory_format=torch.channels_last)
    prunex.LocalSGD(net, OPTIMIZERS["sgd"](net.parameters()))


def test_gradients_that_no_mask_reaches_are_refused():
    net = nn.Sequential(nn.Embedding(9, 8, sparse=True), nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with pytest.raises(ValueError, match="`model`: 0 has sparse gradients"):
        prunex.HSADMM(net, optimizer, total_steps=40, example=torch.arange(4), groups="coupled")
    prunex.LocalSGD(net, optimizer)


def test_masks_without_channels_are_not_passed_over():
    net = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU())
    options = {"total_steps": 40, "example": torch.randn(2, 8), "groups": "coupled"}
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with pytest.raises(ValueError, match="`groups`: got coupled, in which Sequential has no channels that can go"):
        prunex.HSADMM(net, optimizer, **options)
    with pytest.warns(UserWarning, match="no channels that can go: nothing is masked"):
        prunex.DiLoCo(net, optimizer, **options)


def test_heads_of_a_network_without_attention_are_refused():
    net = small_network()
    with pytest.raises(ValueError, match="`heads`: the exported module has no attention of several heads"):
        admm(net, OPTIMIZERS["sgd"](net.parameters()), heads=True)


def test_statistics_that_hold_nothing_back_are_refused():
    with pytest.raises(ValueError, match="`statistics`: .* has no units that stay because a norm"):
        prunex.groups(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(2, 4), statistics=True)


def test_wide_numbers_are_not_rounded():
    net = small_network(torch.float64)
    with pytest.raises(ValueError, match="`payload`: got int8; parameter 0.weight is of float64"):
        prunex.DiLoCo(net, OPTIMIZERS["sgd"](net.parameters()), payload="int8")


def test_an_optimizer_that_no_mask_reaches_is_refused():
    net = small_network()
    optimizer = torch.optim.LBFGS(net.parameters())
    prunex.LocalSGD(net, optimizer)
    with pytest.raises(ValueError, match="`optimizer`: got LBFGS"):
        admm(net, optimizer)
    with pytest.raises(ValueError, match="`optimizer`: got LBFGS"):
        prunex.prune(net, batch(0, 0)[0], ratio=0.5, optimizer=optimizer)


def test_masks_want_one_optimizer_of_all():
    net = small_network()
    half = torch.optim.SGD(net[0].parameters(), 0.05)
    prunex.DiLoCo(net, half)
    with pytest.raises(ValueError, match="`optimizer`: it does not move 1.weight; with masks all that requires"):
        prunex.DiLoCo(net, half, total_steps=40, example=batch(0, 0)[0], groups="coupled")


def test_parameters_that_no_exchange_has_are_warned_of():
    net, temperature = small_network(), nn.Parameter(torch.ones(1))
    with pytest.warns(UserWarning, match="`optimizer`: it also moves 1 parameters that are not of `model`"):
        prunex.LocalSGD(net, torch.optim.SGD([*net.parameters(), temperature], 0.1), 2)
