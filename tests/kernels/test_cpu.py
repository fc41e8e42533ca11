"""The CPU kernel against plain torch with the same noise: layouts, groups, threads, builds."""

import os
import runpy
import shutil
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from qneurons.activations import resolve, rows
from qneurons.given_delta import difference_and_slope
from qneurons.kernels import cpu
from qneurons.noise import seeded_delta

built = pytest.mark.skipif(bool(cpu.why_unavailable()), reason=cpu.why_unavailable())
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
SIZES = (0, 1, 2, 3, 5, 31, 1023, 1025, 4096, 65537)
ROWS = [row for row in rows() if row.difference is not None]
EXACT = 4e-6  # of the scale of the terms, for |x| up to about 8


def available_builds() -> list[str]:
    if cpu.why_unavailable():
        return ["none"]
    return list(cpu._BUILDS[: cpu._load("portable").qneurons_best_build() + 1])


@pytest.fixture(params=available_builds())
def build(request, monkeypatch):
    if request.param == "none":
        pytest.skip(cpu.why_unavailable())
    monkeypatch.setattr(cpu, "_apply", cpu._bind(cpu._load(request.param)))


def law(*seeds, lam=0.3, phi=1e-3, inner=1):
    return (
        torch.tensor(seeds or [2**40 + 7]),
        torch.tensor(lam).expand(len(seeds) or 1),
        torch.tensor([phi]),
        inner,
    )


def call(x, row, arguments):
    """The value, and the slope times a gradient that is 1 for even and -2 for odd elements."""
    what = (*arguments, f"q_{row.name}", list(row.parameters.values()))
    grad = 1 - 3 * torch.arange(x.numel()).remainder(2).reshape(x.shape).to(x.dtype)
    return cpu.forward(x, *what), cpu.backward(grad, x, *what) / grad


def draw(shape, arguments):
    return cpu.forward(torch.zeros(shape), *arguments, "q_delta", [])


def check(x, row, arguments, rounding=0.0):
    delta = draw(x.shape, arguments)
    value, slope = call(x, row, arguments)
    wide = x.double()
    expected, expected_slope = difference_and_slope(wide, delta.double(), row)
    pairs = (value, expected, wide.abs()), (slope, expected_slope, 1.0)
    for got, exact, terms in pairs:
        assert got.dtype == x.dtype
        allowed = EXACT * (exact.abs() + terms) + rounding * (
            exact.abs() + torch.finfo(x.dtype).tiny
        )
        wrong = (got.double() - exact).abs() > allowed
        assert not wrong.any(), (x[wrong], delta[wrong], got[wrong], exact[wrong])


# --- noise ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("lam", [0.0, 0.02, 1.0])
@pytest.mark.parametrize("phi", [0.0, 1e-3])
def test_noise_is_that_of_the_specification(build, lam, phi):
    arguments = law(2**62 + 12345, lam=lam, phi=phi)
    delta = draw(300_001, arguments)
    expected = seeded_delta((300_001,), *arguments, dtype=torch.float32)
    assert torch.equal(delta < 0, expected < 0)
    torch.testing.assert_close(delta, expected, rtol=2e-7, atol=lam * 1e-6)


@built
def test_a_group_draws_the_same_alone_and_between_others():
    packed = draw((8192, 3), law(5, 6, 7, lam=1.0))
    for group, seed in enumerate((5, 6, 7)):
        assert torch.equal(packed[:, group], draw(8192, law(seed, lam=1.0)))


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("lam", [0.05, 1.0])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_size_is_right(build, row, lam):
    generator = torch.Generator().manual_seed(3)
    for size in SIZES:
        x = 2 * torch.randn(size, generator=generator)
        check(x, row, law(lam=lam))


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_half_precision_is_rounded_once(build, row, dtype):
    generator = torch.Generator().manual_seed(4)
    for size in SIZES:
        x = (2 * torch.randn(size, generator=generator)).to(dtype)
        check(x, row, law(lam=0.3), rounding=torch.finfo(dtype).eps / 2)


@pytest.mark.parametrize("phi", [0.0, 1e-6, 0.1, 0.9, 1.0, 1.1, 2.0, 5.0])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_step_is_right(build, row, phi):
    """At λ = 0 the steps are ±φ, or ±2^-40 where φ is 0."""
    check(torch.linspace(-7, 7, 3001), row, law(lam=0.0, phi=phi))


@pytest.mark.parametrize(
    "name", ["sigmoid", "tanh", "elu", "selu", "celu", "softplus", "silu", "gelu", "mish"]
)
def test_tails_are_relatively_right(build, name):
    x = torch.linspace(-30 if name != "gelu" else -10, -5, 2001)
    row = resolve(name)
    for phi in (0.0, 0.01, 0.05, 0.1, 0.5):
        value, slope = call(x, row, law(lam=0.0, phi=phi))
        delta = draw(x.shape, law(lam=0.0, phi=phi)).double()
        expected, expected_slope = difference_and_slope(x.double(), delta, row)
        torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-35)
        torch.testing.assert_close(slope.double(), expected_slope, rtol=1e-5, atol=1e-35)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("elu", {"alpha": 0.5}),
        ("celu", {"alpha": 0.3}),
        ("celu", {"alpha": 4.0}),
        ("softplus", {"beta": 2.5}),
        ("leaky_relu", {"negative_slope": 0.2}),
        ("hardtanh", {"min_val": -0.5, "max_val": 2.0}),
    ],
)
@pytest.mark.parametrize("lam", [0.02, 1.0])
def test_parameters_enter(build, name, parameters, lam):
    x = 3 * torch.randn(5000, generator=torch.Generator().manual_seed(5))
    check(x, resolve(name, **parameters), law(lam=lam))


@pytest.mark.parametrize("lam", [0.02, 1.0])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_what_is_not_finite_is_as_in_the_reference(build, row, lam):
    x, arguments = torch.tensor([torch.nan, torch.inf, -torch.inf, 1.0]).repeat(200), law(lam=lam)
    expected = difference_and_slope(x, draw(x.shape, arguments), row)
    close = {"rtol": 1e-5, "atol": 1e-6, "equal_nan": True}
    for got, want in zip(call(x, row, arguments), expected, strict=True):
        torch.testing.assert_close(got, want, **close)


@pytest.mark.parametrize("lam", [0.05, 0.1, 0.15])
def test_gelu_has_a_form_for_every_size_of_steps(build, lam):
    """Chosen by the steps of 1024 elements: at these λ all three occur."""
    generator = torch.Generator().manual_seed(6)
    scale = torch.linspace(0.2, 3, 64)[:, None]
    check_gelu((scale * torch.randn(64, 1024, generator=generator)).flatten(), law(lam=lam))


def test_gelu_knows_large_steps_of_small_inputs(build):
    check_gelu(torch.linspace(-1.5, 1.5, 3001), law(lam=0.0, phi=0.9))


def check_gelu(x, arguments):
    got = call(x, resolve("gelu"), arguments)
    delta = draw(x.shape, arguments).double()
    expected = difference_and_slope(x.double(), delta, resolve("gelu"))
    for ours, exact in zip(got, expected, strict=True):
        torch.testing.assert_close(ours.double(), exact, rtol=5e-7, atol=7e-7)


@pytest.mark.parametrize("limits", [(-0.5, 2.0), (-2.0, 0.5), (0.0, 0.5), (-0.5, 0.0), (0.4, 0.5)])
def test_either_kink_is_seen_where_no_input_is_large(build, limits):
    row = resolve("hardtanh", min_val=limits[0], max_val=limits[1])
    check(torch.linspace(-1, 1, 3001), row, law(lam=0.02))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_one_nan_among_small_inputs_is_seen(build, row):
    """Where no other is near a kink, the form of all might be one that does not ask."""
    x = torch.full((3000,), 0.01)
    x[2000] = torch.nan
    value, _ = call(x, row, law(lam=0.02))
    assert torch.equal(value.isnan(), x.isnan())


def test_limits_that_are_one_number_in_float32_let_nan_through(build):
    row = resolve("hardtanh", min_val=1.0, max_val=1 + 1e-9)
    value, _ = call(torch.tensor([torch.nan, 0.5]).repeat(600), row, law(lam=0.02))
    assert torch.equal(value.isnan(), torch.tensor([True, False]).repeat(600))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_large_inputs_stay_finite(build, row):
    x = torch.tensor([-1e4, -200.0, -90.0, 90.0, 200.0, 1e4]).repeat(500)
    for phi in (1e-3, 0.5, 1.0, 50.0):
        for result in call(x, row, law(lam=0.0, phi=phi)):
            assert result.isfinite().all()


# --- groups and layouts ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("inner", [1, 7, 512, 600, 5000])
def test_a_group_is_the_same_alone_and_packed(build, inner, dtype):
    seeds, lams = (3, 4, 5), torch.tensor([0.02, 0.3, 2.0])
    x = torch.randn(9, 3, inner, generator=torch.Generator().manual_seed(6)).to(dtype)
    for name in ("elu", "gelu", "relu"):
        seed, _, phi, _ = law(*seeds)
        packed = call(x, resolve(name), (seed, lams, phi, inner))
        for group in range(3):
            alone = (seed[group : group + 1], lams[group : group + 1], phi, inner)
            for whole, part in zip(
                packed, call(x[:, group].contiguous(), resolve(name), alone), strict=True
            ):
                assert torch.equal(whole[:, group], part)


@built
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_layouts_do_not_change_the_result(dtype):
    x = torch.randn(4, 6, 10, 12, generator=torch.Generator().manual_seed(7)).to(dtype)
    row = resolve("elu")
    layouts = [
        x.contiguous(memory_format=torch.channels_last),
        x.transpose(0, 3).contiguous().transpose(0, 3),
        torch.stack([x, x], -1)[..., 1],
        x.flip(0).contiguous().flip(0),
    ]
    for y in layouts:
        results = call(y, row, law())
        for result, expected in zip(results, call(x, row, law()), strict=True):
            assert torch.equal(result, expected)
        value = cpu.forward(y, *law(), "q_elu", [1.0])
        assert value.stride() == torch.empty_like(y).stride()


MATRICES = {  # batch, channels, pixels: what is moved in fours, alone, in part, in several windows
    "whole": (2, 8, 16),
    "rests of both": (3, 7, 9),
    "fewer than four": (5, 3, 1023),
    "flat": (4000, 9, 2),
    "tall": (1, 6, 5003),
    "many windows": (17, 5, 1201),
}


@built
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MATRICES)
def test_matrices_are_read_and_written_in_order(name, dtype):
    batch, channels, pixels = MATRICES[name]
    generator = torch.Generator().manual_seed(1)
    x, grad = torch.randn(2, batch, channels, pixels, generator=generator).to(dtype)
    what = (*law(), "q_elu", [1.0])
    value, slope = cpu.forward(x, *what), cpu.backward(grad, x, *what)
    turned = x.mT.contiguous().mT
    assert turned.stride() != x.stride()
    results = [cpu.forward(turned, *what)]
    results += [cpu.backward(way, turned, *what) for way in (grad, grad.mT.contiguous().mT)]
    for result, expected in zip(results, (value, slope, slope), strict=True):
        assert result.stride() == turned.stride()
        assert torch.equal(result, expected)


@built
def test_expanded_and_zero_dimensional_inputs():
    row = resolve("tanh")
    x = torch.randn(5, 1).expand(5, 700)
    for result, expected in zip(call(x, row, law()), call(x.contiguous(), row, law()), strict=True):
        assert torch.equal(result, expected)
    value = cpu.forward(torch.tensor(0.5), *law(), "q_tanh", [])
    assert value.shape == ()
    assert value == cpu.forward(torch.tensor([0.5]), *law(), "q_tanh", [])
    grad = torch.ones(1).expand(700)
    one = cpu.backward(grad, x[0], *law(), "q_tanh", [])
    assert torch.equal(one, cpu.backward(torch.ones(700), x[0], *law(), "q_tanh", []))


@built
def test_the_law_may_be_given_in_double_precision():
    x = torch.randn(3000)
    seed, lam, phi, inner = law()
    double = cpu.forward(x, seed, lam.double(), phi.double(), inner, "q_elu", [1.0])
    assert torch.equal(double, cpu.forward(x, seed, lam, phi, inner, "q_elu", [1.0]))


@built
def test_what_is_supported():
    for row in ROWS:
        for dtype in DTYPES:
            assert cpu.supports(dtype, f"q_{row.name}")
        assert not cpu.supports(torch.float64, f"q_{row.name}")
    assert not cpu.supports(torch.float32, "q_unheard_of")
    assert any(build in cpu.details() for build in cpu._BUILDS)


# --- threads --------------------------------------------------------------------------------------


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def large() -> torch.Tensor:
    return torch.randn(2**18 + 77, generator=torch.Generator().manual_seed(8))


@built
def test_any_number_of_threads_gives_the_same_bits(threads):
    x, row = large(), resolve("silu")
    threads(1)
    expected = call(x, row, law())
    for num in (2, 3, 7):
        threads(num)
        for result, one in zip(call(x, row, law()), expected, strict=True):
            assert torch.equal(result, one)


@built
def test_callers_in_many_threads_do_not_meet(threads):
    threads(2)
    x, row = large(), resolve("elu")
    expected = call(x, row, law())
    with ThreadPoolExecutor(4) as pool:
        for results in pool.map(lambda _: call(x, row, law()), range(12)):
            for result, one in zip(results, expected, strict=True):
                assert torch.equal(result, one)


@built
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_works(threads):
    threads(2)
    x = large()
    expected = cpu.forward(x, *law(), "q_elu", [1.0])
    child = os.fork()
    if child == 0:  # the child must not return into pytest
        same = bool((cpu.forward(x, *law(), "q_elu", [1.0]).numpy() == expected.numpy()).all())
        os._exit(0 if same else 1)
    deadline = time.monotonic() + 20
    while (status := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    if status[0] == 0:
        os.kill(child, 9)
        os.waitpid(child, 0)
        pytest.fail("the child hangs")
    assert os.waitstatus_to_exitcode(status[1]) == 0


# --- the build ------------------------------------------------------------------------------------


@built
def test_an_instruction_set_can_be_chosen():
    assert cpu._load_best("portable")[1] == "portable"
    with pytest.raises(ValueError, match=r"QNEURONS_NATIVE.*off, portable.*'sse'"):
        cpu._load_best("sse")
    with pytest.raises(OSError, match="QNEURONS_NATIVE=off"):
        cpu._load_best("off")


@built
def test_a_library_of_another_version_is_not_called(monkeypatch):
    monkeypatch.setattr(cpu, "_VERSION", 0)
    with pytest.raises(OSError, match=r"version.*install"):
        cpu._load_best("")


def build_wheel(tmp_path: Path, **environment: str) -> Path:
    """Builds a wheel from a copy of the sources and unpacks it."""
    pytest.importorskip("setuptools", minversion="77")  # as pyproject.toml asks
    root = Path(__file__).parents[2]
    if not (root / "setup.py").exists():
        pytest.skip("no sources")
    source, unpacked = tmp_path / "source", tmp_path / "unpacked"
    unbuilt = shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__")
    shutil.copytree(root / "src", source / "src", ignore=unbuilt)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(root / name, source)
    script = f"from setuptools import build_meta; build_meta.build_wheel({str(tmp_path)!r})"
    subprocess.run(
        [sys.executable, "-c", script],  # as pip does
        cwd=source,
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(unpacked)
    return unpacked


@pytest.mark.skipif(shutil.which("clang") is None, reason="no clang")
def test_clang_knows_every_flag_and_warns_of_nothing(monkeypatch):
    root = Path(__file__).parents[2]
    setuptools = pytest.importorskip("setuptools")
    monkeypatch.setattr(setuptools, "setup", lambda **_: None)
    flags = runpy.run_path(str(root / "setup.py"))["FLAGS"]
    source = root / "src" / "qneurons" / "kernels" / "cpu.c"
    subprocess.run(["clang", *flags, "-Wall", "-Werror", "-fsyntax-only", source], check=True)


SMALL_STACK = """
import threading, torch
import qneurons as qn

def draw():
    x = torch.randn(4, 16, 40, 40).contiguous(memory_format=torch.channels_last).requires_grad_()
    qn.q_elu(x, 1.0).sum().backward()
    assert x.grad.count_nonzero() > 0

torch.set_num_threads(1)
threading.stack_size(2**16)
thread = threading.Thread(target=draw)
thread.start()
thread.join()
"""


@built
def test_channels_last_needs_little_stack():
    subprocess.run([sys.executable, "-c", SMALL_STACK], check=True)


WITHOUT_MEMORY = """
import resource, sys, torch
import qneurons as qn
from qneurons.kernels import cpu

if sys.argv[1] == "ctypes":
    cpu.spec_from_loader = lambda *_: None
    cpu._apply = cpu._bind(cpu._library)
torch.set_num_threads(1)
x = torch.randn(2, 8, 8, 8).contiguous(memory_format=torch.channels_last)
expected = qn.q_elu(x, 1.0, seed=torch.tensor(1))
num_pages = int(open("/proc/self/statm").read().split()[0])
limits = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (num_pages * resource.getpagesize(), limits[1]))
taken = []
try:
    while True:
        taken.append(bytearray(200_000))  # the window of a thread is larger
except MemoryError:
    pass
try:
    qn.q_elu(x, 1.0)
except MemoryError:
    taken.clear()
    resource.setrlimit(resource.RLIMIT_AS, limits)
    assert torch.equal(qn.q_elu(x, 1.0, seed=torch.tensor(1)), expected)
    print("raised")
"""


@built
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("binding", ["headers", "ctypes"])
def test_without_memory_for_channels_last_a_draw_raises(binding):
    command = [sys.executable, "-c", WITHOUT_MEMORY, binding]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    assert result.stdout == "raised\n"


# Stands for a compiler, which would take seconds for each library: writes the name of its output.
COMPILER = """\
#!/bin/sh
for word; do test "$last" = -o && echo "$word" > "$word"; last="$word"; done
"""


def test_a_wheel_holds_a_library_for_each_instruction_set(tmp_path):
    compiler = tmp_path / "cc"
    compiler.write_text(COMPILER)
    compiler.chmod(0o700)
    kernels = build_wheel(tmp_path, CC=str(compiler)) / "qneurons" / "kernels"
    for name in ["portable"] if cpu.why_unavailable() else available_builds():
        (library,) = kernels.glob(f"_native_{name}.*")
        assert library.name in library.read_text()
    assert not list(kernels.glob("*.[ch]"))


def test_without_a_compiler_the_package_installs_and_says_so(tmp_path):
    unpacked = build_wheel(tmp_path, CC="/bin/false")
    script = (
        "import torch; from qneurons import kernels, q_activation; print(kernels.status());"
        "q_activation(torch.randn(9), 'elu')"
    )
    result = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(unpacked)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert "without a C compiler" in result.stdout
