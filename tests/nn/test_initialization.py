"""Initialization: torch's own draws, printed forms that fail, what a signal keeps through deep maps."""

import math

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

from margin.nn.initialization import SCHEMES, affine_weights, initialize, standard_deviation


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def drawn(scheme, *, fan_in=400, fan_out=300, scale=None, seed=0):
    layer = nn.Linear(fan_in, fan_out).double()
    initialize(layer, scheme, scale=scale, generator=seeded(seed))
    return layer.weight.detach()


TORCH = {
    "glorot_normal": nn.init.xavier_normal_,
    "glorot_uniform": nn.init.xavier_uniform_,
    "he_normal": lambda w, generator: nn.init.kaiming_normal_(w, nonlinearity="relu", generator=generator),
    "he_uniform": lambda w, generator: nn.init.kaiming_uniform_(w, nonlinearity="relu", generator=generator),
    "lecun_normal": lambda w, generator: nn.init.kaiming_normal_(
        w, nonlinearity="linear", generator=generator
    ),
    "lecun_uniform": lambda w, generator: nn.init.kaiming_uniform_(
        w, nonlinearity="linear", generator=generator
    ),
    "orthogonal": lambda w, generator: nn.init.orthogonal_(w, generator=generator),
}


@pytest.mark.parametrize("scheme", TORCH)
@pytest.mark.parametrize("layer", [nn.Linear(7, 5), nn.Conv2d(3, 4, (3, 5))], ids=["linear", "conv"])
def test_a_scheme_draws_what_torch_draws(scheme, layer):
    expected = TORCH[scheme](torch.empty_like(layer.weight), generator=seeded(3))
    initialize(layer, scheme, generator=seeded(3))
    torch.testing.assert_close(layer.weight.detach(), expected.detach(), rtol=1e-6, atol=0)
    assert not layer.bias.any()


# A variance estimated from k normal entries has relative standard error sqrt(2 / k); 4.5 of them are exceeded
# with probability 7e-6.
@pytest.mark.parametrize(
    ("scheme", "variance"),
    [
        ("normal", 0.01**2),
        ("uniform", 0.01**2),
        ("lecun_normal", 1 / 400),
        ("lecun_uniform", 1 / 400),
        ("glorot_normal", 2 / 700),
        ("glorot_uniform", 2 / 700),
        ("he_normal", 2 / 400),
        ("he_uniform", 2 / 400),
        ("orthogonal", 1 / 400),
    ],
)
def test_the_variance_is_the_stated_one_and_the_scale_is_a_deviation(scheme, variance):
    w = drawn(scheme)
    allowed = 4.5 * math.sqrt(2 / w.numel())
    assert float(w.square().mean()) / variance == pytest.approx(1, abs=allowed)
    assert abs(float(w.mean())) <= 4.5 * math.sqrt(variance / w.numel())
    scale = 0.3
    factor = (scale / 0.01) ** 2 if scheme in ("normal", "uniform") else scale**2
    scaled = drawn(scheme, scale=scale)
    torch.testing.assert_close(scaled, w * math.sqrt(factor), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize(
    ("scheme", "bound"),
    [
        ("uniform", math.sqrt(3) * 0.01),
        ("lecun_uniform", math.sqrt(3 / 400)),
        ("glorot_uniform", math.sqrt(6 / 700)),
        ("he_uniform", math.sqrt(6 / 400)),
    ],
)
def test_a_uniform_law_fills_its_stated_bound(scheme, bound):
    # of 120,000 draws none lies in the outer 1/5000 with probability e^-24
    largest = float(drawn(scheme).abs().max())
    assert 0.9998 * bound <= largest <= bound


def test_the_printed_forms_do_not_keep_what_they_promise():
    x = torch.randn(10_000, 64, generator=seeded(1), dtype=torch.float64)
    n = m = 64
    kept = {
        "lecun": math.sqrt(3 / n),
        "U[-1/sqrt n, 1/sqrt n]": 1 / math.sqrt(n),
        "glorot without the root": math.sqrt(3) * 2 / (n + m),
        "he without the root": math.sqrt(3) * 2 / n,
    }
    gains = {}
    for name, bound in kept.items():
        w = torch.empty(256, n, dtype=torch.float64).uniform_(-bound, bound, generator=seeded(2))
        gains[name] = float((x @ w.T).var() / x.var())
    # n times the mean square of 16,384 uniform weights has relative stderr 0.7 %, that of x less
    assert gains["lecun"] == pytest.approx(1, rel=0.035)
    assert gains["U[-1/sqrt n, 1/sqrt n]"] == pytest.approx(1 / 3, rel=0.035)
    assert gains["glorot without the root"] == pytest.approx(1 / n, rel=0.035)
    assert gains["he without the root"] == pytest.approx(4 / n, rel=0.035)  # 2 was meant
    assert math.sqrt(2 / n + m) > 8  # the printed sqrt(2/n + m), where 2 / (n + m) is 1/64
    torch.manual_seed(0)
    default = nn.Linear(n, 256).weight.detach()
    # what nn.Linear draws by default is the printed form: a third of the variance is kept
    assert float(default.square().mean()) * n == pytest.approx(1 / 3, rel=0.035)


def test_lecun_keeps_the_variance_of_each_output_over_draws():
    # Var[(W x)_i] = |x|^2 / n for fixed x; a variance of 10,000 draws has relative stderr sqrt(2 / 10,000)
    x = torch.randn(30, generator=seeded(4), dtype=torch.float64)
    for scheme in ("lecun_normal", "lecun_uniform"):
        layer = nn.Linear(30, 10_000).double()
        initialize(layer, scheme, generator=seeded(5))
        outputs = layer(x).detach()
        assert float(outputs.var() / x.square().mean()) == pytest.approx(1, abs=4.5 * math.sqrt(2e-4))


def test_glorot_balances_both_directions():
    def product(n, m):
        variance = standard_deviation("glorot_normal", n, m) ** 2
        return math.sqrt(n * variance * m * variance)

    assert product(64, 64) == pytest.approx(1, abs=1e-15)
    assert product(64, 16) == pytest.approx(2 * math.sqrt(64 * 16) / 80, abs=1e-15)  # below 1 unless n = m
    assert standard_deviation("glorot_uniform", 3, 5) == 0.5
    assert standard_deviation("he_normal", 8, 1000) == 0.5
    assert standard_deviation("lecun_normal", 4, 1000) == 0.5


def test_orthogonal_matrices_keep_lengths_through_any_depth():
    layers = [nn.Linear(32, 32, bias=False).double() for _ in range(60)]
    net = nn.Sequential(*layers)
    initialize(net, "orthogonal", generator=seeded(6))
    for layer in layers[:3]:
        singular = torch.linalg.svdvals(layer.weight.detach())
        torch.testing.assert_close(singular, torch.ones_like(singular), rtol=0, atol=1e-12)
    x = torch.randn(10, 32, generator=seeded(7), dtype=torch.float64)
    torch.testing.assert_close(net(x).norm(dim=1), x.norm(dim=1), rtol=1e-12, atol=0)
    initialize(net, "orthogonal", scale=2.0, generator=seeded(6))
    torch.testing.assert_close(
        net(x).norm(dim=1).log2() - x.norm(dim=1).log2(), torch.full((10,), 60.0).double()
    )


def test_the_eigenvalues_of_an_orthogonal_matrix_are_no_signs():
    # Haar on O(2) is a rotation or a reflection with probability 1/2 each: of 40 all reflect with 1e-12
    rotations = 0
    for seed in range(40):
        w = drawn("orthogonal", fan_in=2, fan_out=2, seed=seed)
        eigenvalues = torch.linalg.eigvals(w)
        torch.testing.assert_close(eigenvalues.abs(), torch.ones(2).double(), rtol=0, atol=1e-12)
        if float(torch.det(w)) > 0:
            rotations += 1
            assert float(eigenvalues.imag.abs().min()) > 1e-3  # printed: +1 or -1
    assert 5 < rotations < 35


def test_a_rectangular_orthogonal_matrix_has_orthonormal_rows_or_columns():
    wide, tall = drawn("orthogonal", fan_in=9, fan_out=4), drawn("orthogonal", fan_in=4, fan_out=9)
    torch.testing.assert_close(wide @ wide.T, torch.eye(4).double(), rtol=0, atol=1e-12)
    torch.testing.assert_close(tall.T @ tall, torch.eye(4).double(), rtol=0, atol=1e-12)


def chi_square_ratios(nets, *, width, depth, gain, seed):
    """log |h_L|^2 / |h_0|^2 by its exact law, without a matrix.

    Given h, the entries of W h are independent N(0, gain |h|^2 / n): |relu(W h)|^2 / |h|^2 is gain / n times
    a chi-square variable of as many degrees of freedom as entries are positive, a binomial number.
    """
    g = seeded(seed)
    positive = torch.rand(nets, depth, width, generator=g) < 0.5
    squares = torch.randn(nets, depth, width, generator=g).square()
    return (gain / width * (positive * squares).sum(2).double()).log().sum(1)


def simulated_ratios(scheme, nets, *, width, depth, seed):
    g, logs = seeded(seed), []
    net = nn.Sequential(*(m for _ in range(depth) for m in (nn.Linear(width, width), nn.ReLU())))
    for _ in range(nets):
        initialize(net, scheme, generator=g)
        x = torch.randn(width, generator=g)
        logs.append(float((net(x).square().sum() / x.square().sum()).detach().log()))
    return torch.tensor(logs, dtype=torch.float64)


@pytest.mark.parametrize(("scheme", "gain"), [("he_normal", 2.0), ("lecun_normal", 1.0)])
def test_the_law_of_the_ratio_is_a_product_of_chi_squares(scheme, gain):
    exact = chi_square_ratios(400, width=64, depth=30, gain=gain, seed=10)
    nets = simulated_ratios(scheme, 60, width=64, depth=30, seed=8)
    spread = math.sqrt(float(exact.var()) / 400 + float(nets.var()) / 60)
    assert abs(float(exact.mean() - nets.mean())) <= 4 * spread
    # variances of 60 and 400 nearly normal numbers: relative stderr 0.2
    assert float(nets.var() / exact.var()) == pytest.approx(1, abs=0.85)


def test_he_keeps_the_mean_square_through_fifty_layers_and_lecun_halves_it_fifty_times():
    width, depth, nets = 1024, 50, 200
    he = chi_square_ratios(nets, width=width, depth=depth, gain=2.0, seed=11)
    assert abs(float(he.exp().mean()) - 1) <= 4 * float(he.exp().std()) / math.sqrt(nets)
    # log variance about 5 L / n: Var[2 / n relu(z)^2 summed] = 5 / n, known from 200 nets to 10 %
    assert float(he.var()) == pytest.approx(5 * depth / width, rel=0.42)
    lecun = chi_square_ratios(nets, width=width, depth=depth, gain=1.0, seed=12).exp() * 2.0**depth
    assert abs(float(lecun.mean()) - 1) <= 4 * float(lecun.std()) / math.sqrt(nets)


def test_grouped_and_transposed_convolutions_keep_the_variance_too():
    x = torch.randn(64, 32, 12, 12, generator=seeded(12), dtype=torch.float64)
    for layer in (
        nn.Conv2d(32, 32, 3, groups=32),
        nn.ConvTranspose2d(32, 48, 3),
        nn.Conv2d(32, 64, 3, groups=4),
    ):
        layer = layer.double()
        initialize(layer, "lecun_normal", generator=seeded(13))
        y = layer(x)
        inner = y[..., 2:-2, 2:-2]  # the border of a transposed convolution sums fewer places
        terms = layer.weight.numel()
        # the gain is a mean of ``terms`` squared weights: relative stderr sqrt(2 / terms); images add < 1 %
        assert float(inner.var().detach()) == pytest.approx(1, abs=4 * math.sqrt(2 / terms) + 0.02)


def test_each_group_of_a_depthwise_convolution_is_orthogonal_on_its_own():
    layer = nn.Conv2d(16, 16, 3, groups=16).double()
    initialize(layer, "orthogonal", generator=seeded(14))
    rows = layer.weight.detach().flatten(1)
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(16).double(), rtol=0, atol=1e-12)


def fans(module):
    return {found.name: found.fans for found in affine_weights(module)}


def test_fans_of_every_kind_of_affine_map():
    assert fans(nn.Linear(7, 5)) == {"weight": (7, 5)}
    assert fans(nn.Conv2d(6, 9, (3, 5))) == {"weight": (90, 135)}
    assert fans(nn.Conv1d(6, 9, 4, groups=3)) == {"weight": (8, 12)}
    assert fans(nn.ConvTranspose2d(6, 9, 2, groups=3)) == {"weight": (8, 12)}
    assert fans(nn.LSTM(3, 4)) == {"weight_ih_l0": (3, 4), "weight_hh_l0": (4, 4)}
    assert fans(nn.LSTM(3, 4, proj_size=2))["weight_hr_l0"] == (4, 2)
    assert fans(nn.GRUCell(3, 4)) == {"weight_ih": (3, 4), "weight_hh": (4, 4)}
    assert fans(nn.MultiheadAttention(4, 2)) == {"in_proj_weight": (4, 4), "out_proj.weight": (4, 4)}
    named = fans(nn.MultiheadAttention(4, 2, kdim=3, vdim=5))
    assert named["k_proj_weight"] == (3, 4) and named["v_proj_weight"] == (5, 4)


def test_gates_are_orthogonal_one_by_one_and_all_biases_are_zero():
    lstm = nn.LSTM(4, 4, num_layers=2).double()
    initialize(lstm, "orthogonal", generator=seeded(15))
    for name, weight in lstm.named_parameters():
        if "weight" in name:
            for gate in weight.detach().chunk(4):
                torch.testing.assert_close(gate @ gate.T, torch.eye(4).double(), rtol=0, atol=1e-12)
        else:
            assert not weight.any()


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(5, 3)), nn.Parameter(torch.ones(5))


def test_only_affine_maps_are_drawn_and_a_shared_one_once():
    head = nn.Linear(4, 4)
    net = nn.ModuleDict(
        {
            "embedding": nn.Embedding(6, 4),
            "norm": nn.LayerNorm((4, 4)),
            "batch": nn.BatchNorm1d(4),
            "slope": nn.PReLU(3),
            "own": Own(),
            "head": head,
            "again": head,
        }
    )
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    initialize(net, "he_normal", generator=seeded(16))
    assert [found.name for found in affine_weights(net)] == ["own.weight", "head.weight"]
    changed = {name for name, p in net.named_parameters() if not torch.equal(p, before[name])}
    assert changed == {"own.weight", "own.bias", "head.weight", "head.bias"}
    assert affine_weights(net)[0].fans == (3, 5)


def test_a_weight_normalized_weight_is_drawn_as_a_whole():
    plain, normed = nn.Linear(6, 4), parametrizations.weight_norm(nn.Linear(6, 4))
    for layer in (plain, normed):
        initialize(layer, "he_uniform", generator=seeded(17))
    torch.testing.assert_close(normed.weight, plain.weight)
    assert not normed.bias.any()


def test_the_global_generator_is_left_alone_where_one_is_given():
    layer, before = nn.Linear(6, 4), torch.get_rng_state()
    initialize(layer, "orthogonal", generator=seeded(18))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(5)
    initialize(layer, "he_normal")
    first = layer.weight.detach().clone()
    torch.manual_seed(5)
    initialize(layer, "he_normal")
    assert torch.equal(layer.weight, first)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_types_and_strides_are_kept(dtype):
    layer = nn.Conv2d(4, 8, 3).to(dtype=dtype, memory_format=torch.channels_last)
    stride = layer.weight.stride()
    for scheme in SCHEMES:
        initialize(layer, scheme, generator=seeded(19))
        assert layer.weight.dtype == dtype and layer.weight.stride() == stride
        assert bool(layer.weight.isfinite().all()) and bool(layer.weight.any())


@pytest.mark.parametrize(
    ("module", "given", "message"),
    [
        (
            nn.Linear(2, 2),
            {"scheme": "he_norml"},
            "scheme must be one of .*: got 'he_norml'; nearest: he_normal",
        ),
        (nn.Linear(2, 2), {"scheme": "normal", "scale": 0.0}, "scale must be positive and finite: got 0.0"),
        (
            nn.Linear(2, 2),
            {"scheme": "normal", "scale": math.nan},
            "scale must be positive and finite: got nan",
        ),
        (nn.ReLU(), {"scheme": "normal"}, "initialization needs an affine map: ReLU has none"),
        (
            parametrizations.spectral_norm(nn.Linear(2, 2)),
            {"scheme": "normal"},
            "parametrized must be so by weight normalization alone: got _SpectralNorm at weight",
        ),
        (nn.LazyLinear(2), {"scheme": "normal"}, "a weight must have a shape: weight is lazy"),
        (
            prune.l1_unstructured(nn.Linear(2, 2), "weight", 1),
            {"scheme": "normal"},
            "a weight must be a parameter: weight is computed from others",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(module, given, message):
    with pytest.raises(ValueError, match=message):
        initialize(module, **given)


def test_a_refusal_changes_nothing():
    net = nn.Sequential(nn.Linear(2, 2), parametrizations.orthogonal(nn.Linear(2, 2)))
    before = net[0].weight.detach().clone()
    with pytest.raises(ValueError, match=r"at 1\.weight"):
        initialize(net, "he_normal")
    assert torch.equal(net[0].weight, before)


def test_an_orthogonal_scheme_has_no_deviation_of_single_entries():
    with pytest.raises(ValueError, match="the entries of an orthogonal matrix are not independent"):
        standard_deviation("orthogonal", 3, 3)
