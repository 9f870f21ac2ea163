"""sparsify: penalties that drive whole units towards zero."""

import pytest
import torch
from torch import nn

import prunex
from training import batch, small_network

X = batch(0, 0)[0]


def test_penalties_are_added_to_gradients():
    net = small_network()
    penalties = prunex.sparsify(net, X, "group_lasso", strength=0.1)
    images, labels = batch(0, 1)
    nn.functional.cross_entropy(net(images), labels).backward()
    before = net[3].weight.grad.clone()
    penalties()
    # group lasso (arXiv 1901.09290): strength w / |unit|, of the unit's rows and of the units that it reads
    added = net[3].weight.grad - before
    assert (added * net[3].weight > 0).all() and not torch.equal(added, torch.zeros_like(added))
    penalties(factor=0.0)
    torch.testing.assert_close(net[3].weight.grad, before + added)
    with pytest.raises(ValueError, match="`strength`: got none"):
        prunex.sparsify(net, X, "group_lasso")
    with pytest.raises(ValueError, match="`penalty`: got 'none'"):
        prunex.sparsify(net, X, "none")


def test_sparse_training_shrinks_what_goes():
    torch.manual_seed(0)
    net, plain = small_network(), small_network()
    penalties = prunex.sparsify(net, X, "group_norm", strength=0.06)
    for model in (net, plain):
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        for step in range(1, 31):
            images, labels = batch(0, step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            if model is net:
                penalties()
            optimizer.step()
            if model is net and step % 10 == 0:
                penalties.refresh()

    def weakest(model):
        norms = model[3].weight.flatten(1).norm(dim=1).sort().values
        return (norms[:8].sum() / norms[8:].sum()).item()

    assert weakest(net) < 0.7 * weakest(plain)


@pytest.mark.parametrize("penalty", ["group_norm", "growing"])
def test_layers_that_do_not_train_get_no_penalty(penalty):
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 3))
    net[0].weight.requires_grad_(False)
    penalties = prunex.sparsify(net, X, penalty, strength=0.1)
    net(X).square().mean().backward()
    before = net[2].weight.grad.clone()
    penalties()
    assert net[0].weight.grad is None and not torch.equal(before, net[2].weight.grad)
    net[2].weight.requires_grad_(False)
    penalties.refresh()


def test_ignored_layers_get_no_penalty():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 3))
    net(X).square().mean().backward()
    before = [p.grad.clone() for p in net.parameters()]
    with pytest.raises(ValueError, match="no channels that could be removed"):
        prunex.sparsify(net, X, ignore=[net[0], "2"])
    prunex.sparsify(net, X, ignore=[net[0]])()
    assert torch.equal(net[0].weight.grad, before[0]) and not torch.equal(net[2].weight.grad, before[2])


def test_an_ignored_module_stands_for_the_layers_in_it_that_make_channels():
    net = nn.Sequential(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.PReLU(8)), nn.Conv2d(8, 6, 3),
                        nn.ReLU(), nn.Conv2d(6, 4, 3))
    net(X).square().mean().backward()
    before = [p.grad.clone() for p in net.parameters()]
    prunex.sparsify(net, X, ignore=[net[0]])()
    assert torch.equal(net[0][0].weight.grad, before[0])
    assert not torch.equal(net[1].weight.grad, before[5])
    with pytest.raises(ValueError, match="`ignore`: got a BatchNorm2d, 0.1, which makes no channels"):
        prunex.sparsify(net, X, ignore=[net[0][1]])


def test_penalties_grow_from_nothing():
    net = small_network()
    penalties = prunex.sparsify(net, X, "growing", strength=0, growth=0.1)
    net(X).square().mean().backward()
    before = net[3].weight.grad.clone()
    penalties()
    assert torch.equal(net[3].weight.grad, before)
    penalties.refresh(1.0)
    penalties()
    assert not torch.equal(net[3].weight.grad, before)


def test_penalties_go_on_from_their_state(tmp_path):
    def gradient(penalties):
        net.zero_grad()
        net(X).square().mean().backward()
        penalties()
        return net[3].weight.grad.clone()

    net = small_network()
    penalties = prunex.sparsify(net, X, "growing", growth=0.1)
    for _ in range(3):
        penalties.refresh()
    torch.save(penalties.state_dict(), tmp_path / "penalties.pt")
    saved = torch.load(tmp_path / "penalties.pt", weights_only=True)
    anew = prunex.sparsify(net, X, "growing", growth=0.1)
    assert not torch.equal(gradient(anew), gradient(penalties))
    anew.load_state_dict(saved)
    assert torch.equal(gradient(anew), gradient(penalties))
    anew.refresh(), penalties.refresh()
    assert torch.equal(gradient(anew), gradient(penalties))

    with pytest.raises(ValueError, match="got a state of 'growing', wanted one of 'group_norm'"):
        prunex.sparsify(net, X).load_state_dict(saved)
    other = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 3))
    with pytest.raises(ValueError, match="of another module: 0/0.weight differs"):
        prunex.sparsify(other, X, "growing").load_state_dict(saved)


def test_numbers_that_no_penalty_can_be_added_to_are_refused_at_once():
    with pytest.raises(ValueError, match="`model`: 0.weight is torch.bfloat16, wanted torch.float32 or torch.float64"):
        prunex.sparsify(small_network(torch.bfloat16), X.bfloat16())


def test_penalties_of_a_network_that_was_pruned_since_are_refused():
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    x = torch.randn(3, 4)
    penalties = prunex.sparsify(net, x, strength=0.1)
    prunex.prune(net, x, ratio=0.5)
    net(x).square().mean().backward()
    for use in (penalties, penalties.refresh):
        with pytest.raises(ValueError, match="they were made before it was pruned"):
            use()


def test_penalties_of_a_flattened_network_that_was_pruned_since_are_refused():
    net = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2304, 64), nn.ReLU(), nn.Linear(64, 2))
    penalties = prunex.sparsify(net, X[:, :, :8, :8], strength=0.1)
    prunex.prune(net, X[:, :, :8, :8], ratio=0.5)
    with pytest.raises(ValueError, match="they were made before it was pruned"):
        penalties.refresh()


@pytest.mark.parametrize("options, message", [
    ({"penalty": "l7"}, "`penalty`: got 'l7', wanted one of bn_scale, "),
    ({"penalty": "none"}, "`penalty`: got 'none'"),
    ({"strength": float("nan")}, "`strength`: got nan"),
    ({"strength": -1}, "`strength`: got -1"),
    ({"penalty": "growing", "growth": -1}, "`growth`: got -1"),
    ({"growth": 1e-4}, "`growth`: has no effect with group_norm"),
    ({"strength": 0}, "`strength`: got 0, which adds nothing"),
    ({"penalty": "growing", "strength": 0, "growth": 0}, "`strength`: got 0, which adds nothing"),
])
def test_penalties_without_sense_are_refused_by_name(options, message):
    with pytest.raises(ValueError) as error:
        prunex.sparsify(small_network(), X, **options)
    assert message in str(error.value)
    with pytest.raises(ValueError, match="`penalty`: the network has no batch norm"):
        prunex.sparsify(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)), X, "bn_scale")
    with pytest.raises(ValueError, match="`factor`: got nan"):
        prunex.sparsify(small_network(), X)(float("nan"))
