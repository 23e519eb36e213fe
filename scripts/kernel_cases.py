"""The forms in which `scripts/compile_kernels` compiles each Triton kernel."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

UNITS: Final = (
    "lrn",
    "olrn",
    "sru",
    "ssru",
    "min_gru",
    "min_lstm",
    "atr",
    "gru",
    "lstm",
    "attention",
    "loss",
    "dropout",
)
STORAGES: Final = ("bf16", "fp32")
FORWARD: Final = ((64, 1, 12), (128, 1, 7), (128, 1, 4), (128, 1, 1), (64, 4, 1))
BACKWARD: Final = (*FORWARD[:-1], (64, 3, 1))
"""SINGLE_STEP, and all launches that `nmt.ops.scan.triton.launch_for` can choose except one between the first two."""

SINGLE_STEP: Final = (128, 1, 1)
"""The launch `nmt.ops.scan.triton.STEP`."""

HOPPER_SHARED: Final = 227 * 1024
"""Bytes of shared memory that a program can have on an H100."""

EXCHANGE: Final = (r"\b(ld|atom)\S*\.acquire", r"\b(atom|red)\S*\.release", r"\bld\S*\.cg\b")
"""Instructions of programs that run together and exchange states; Triton 3.6 drops an acquire with an unused value."""

VECTORS: Final = (r"\bld\.global\S*\.v4\.b32|\bcp\.async\S* .*, 0x10", r"\bst\.global\S*\.v4\.b32")
"""Loads and stores of 16 bytes by one thread."""


class Case(NamedTuple):
    """A kernel as one launch compiles it."""

    unit: str
    kernel: Any
    storage: str
    """Type of the sequences."""
    form: str
    """Its difference from the other cases of the kernel."""
    constants: dict[str, Any]
    types: dict[str, str]
    """Types of arguments that are not guessed from their names."""
    warps: int
    options: Mapping[str, Any] = MappingProxyType({})
    """Further options for the compiler."""
    together: int = 1
    """How many programs must run on a multiprocessor at the same time."""
    instructions: tuple[str, ...] = ()
    """Patterns of instructions that its code must have."""
    odd: tuple[str, ...] = ()
    """Sizes and strides that are not multiples of 16 here, although they usually are."""


def scan_cases() -> Iterator[Case]:
    """Units without a matrix, in each launch, with mask and initial state.

    The first launch in bf16 is also compiled in both directions without mask and initial state, and for pairs of cells.
    Units with an option are compiled in one launch only.
    """
    from nmt.ops import LRN, OLRN, SRU, SSRU, MinGRU, MinLSTM
    from nmt.ops.scan import Pair, ScanUnit
    from nmt.ops.scan.triton import scan_backward_kernel, scan_forward_kernel, unit_constants

    units: list[ScanUnit] = [LRN(), OLRN(), OLRN(tanh=True), SRU(), SSRU(), MinGRU(), MinGRU(positive=True)]
    units += [MinLSTM(), MinLSTM(positive=True)]
    variants = ("", "both directions, no mask, no initial state", "pair of cells")
    kernels = (scan_forward_kernel, FORWARD), (scan_backward_kernel, BACKWARD)
    for unit, storage, (kernel, launches) in itertools.product(units, STORAGES, kernels):
        for launch, variant in itertools.product(launches, variants):
            if (variant and (launch, storage) != (launches[0], "bf16")) or (unit.code and launch != launches[1]):
                continue
            block, unroll, stages = launch
            plain, single = variant.startswith("both"), launch == SINGLE_STEP
            constants = unit_constants(Pair(cell=unit) if variant.startswith("pair") else unit)
            constants |= {"MASKED": not plain, "STARTED": not plain, "REVERSE": 0, "BOTH": plain}
            constants |= {
                "BLOCK": block,
                "UNROLL": unroll,
                "STAGES": stages,
                "KEPT": 1 if single else unit.states,
                "GIVEN": True,
            }
            constants |= {"ADDED": single}
            constants |= dict.fromkeys(("p_mask", "p_first")) if plain else {}
            constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
            plainly = f"{unroll} steps unrolled" if unroll > 1 else "single steps"
            form = f"block {block}, " + (f"{stages} stages" if stages > 1 else plainly)
            form += unit.words.replace(unit.name, "").replace(" ", ", ") + f", {variant}" * bool(variant)
            types = {"p_memory": "*fp32"} if unit.wide_memory else {}
            yield Case(unit.name, kernel, storage, form, constants, types, 1)


ATR_FORMS: Final[tuple[tuple[str, int, dict[str, Any]], ...]] = (
    ("usual size", 512, {"NORMALIZED": True}),
    ("no layer norm", 512, {}),
    ("size of wmt14, the most on chip", 1024, {"NORMALIZED": True}),
    ("size that blocks do not divide", 1000, {"NORMALIZED": True}),
    ("coupled gates, no layer norm", 512, {"GATES": "coupled"}),
    ("other gates, no mask, tanh twice, backward in time", 512, {
        "NORMALIZED": True, "GATES": "coupled_input", "MASKED": False, "REVERSE": 1, "TANH_CANDIDATE": True,
        "TANH_STATE": True,
    }),
    ("a launch that ends with the sums, in tests", 512, {"PERSISTENT": False, "NORMALIZED": True, "REST": False}),
    ("a launch that begins with the sums, in tests", 512, {"PERSISTENT": False, "NORMALIZED": True, "SUMS": False}),
)  # fmt: skip
"""The purpose of a form of ATR's kernels, its channels, and its unusual constants."""

ATR_SIZES: Final = 4
"""Number of forms, from the first, that are also compiled in fp32; the special code of the others is the same there."""


def atr_cases() -> Iterator[Case]:
    """ATR over whole sequences."""
    import torch

    from nmt.ops.atr import triton as atr

    usual = {"GATES": "twin", "TANH_CANDIDATE": False, "TANH_STATE": False, "MASKED": True, "REVERSE": 0}
    usual |= {"NORMALIZED": False, "SUMS": True, "REST": True, "PERSISTENT": True, "PRECISION": atr.FP32_PRODUCTS}
    for storage, (purpose, hidden, own) in itertools.product(STORAGES, ATR_FORMS):
        if storage == "fp32" and (purpose, hidden, own) not in ATR_FORMS[:ATR_SIZES]:
            continue
        dtype = torch.bfloat16 if storage == "bf16" else torch.float32
        tiles = atr.tile_rule(torch.empty(1, hidden, hidden, dtype=dtype, device="meta"), batch=64)
        constants = {**usual, **own, "H": hidden, "BM": tiles.rows, "BN": tiles.columns, "KC": tiles.depth}
        form = f"{purpose}: H {hidden}, {tiles.rows} x {tiles.columns} x {tiles.depth}, {tiles.warps} warps"
        normalized, persistent = constants["NORMALIZED"], constants["PERSISTENT"]
        types = dict.fromkeys(("p_weight", "p_states", "p_dq", "p_du"), f"*{storage}")
        types["p_product"] = "*fp32" if normalized else f"*{storage}"
        options = {"num_stages": atr.STAGES, "launch_cooperative_grid": persistent, "maxnreg": atr.REGISTERS}
        each = atr.programs_each(hidden, tiles, shared=HOPPER_SHARED, element_size=dtype.itemsize) if persistent else 1
        absent = set() if normalized else {"p_scale", "p_sums", "p_factor"}
        absent |= set() if constants["MASKED"] else {"p_mask"}
        steps = [f"{tensor}_{axis}" for tensor in ("sx", "sg", "sdx") for axis in "dbt"]
        for kernel in (atr.atr_forward_kernel, atr.atr_backward_kernel):
            fixed = dict.fromkeys(absent & set(kernel.arg_names))
            yield Case(
                "atr", kernel, storage, form, constants | fixed, types, tiles.warps, options, each,
                EXCHANGE if persistent else (), odd=tuple(steps) if hidden % 16 else (),
            )  # fmt: skip


def attention_cases() -> Iterator[Case]:
    """Attention: a short source with wide heads, also in a loop; a longer one; the longest, with the most registers."""
    from nmt.ops.attention import triton as kernels
    from nmt.ops.attention.triton import MEMORY_BLOCKS, MEMORY_WARPS, MOST_SOURCE, WARPS, block_rule

    sizes = [(32, 1024), (128, 512), (MOST_SOURCE, 2048)]
    for storage, (source, width) in itertools.product(STORAGES, sizes):
        blocks = block_rule(source, width, width)
        constants = {"FACTOR": 1, **blocks}
        for kernel in (kernels.attention_forward_kernel, kernels.attention_query_backward_kernel):
            absent = {"p_dweights": None} if "p_dweights" in kernel.arg_names else {}
            form = f"source {blocks['BLOCK_S']}, {blocks['BLOCK_W']} wide, {WARPS} warps"
            yield Case("attention", kernel, storage, form, constants | absent, memory_types(storage), WARPS)
            if source == sizes[0][0]:
                doubled = constants | absent | {"FACTOR": 2}
                loop = f"{form}, in a loop"
                yield Case("attention", kernel, storage, loop, doubled, memory_types(storage), WARPS)
                if absent:
                    del doubled["p_dweights"]
                    loop += ", memory multiplied once"
                    yield Case("attention", kernel, storage, loop, doubled, memory_types(storage), WARPS)
    for storage in STORAGES:
        constants = {"FACTOR": 1, **MEMORY_BLOCKS}
        form = f"{MEMORY_BLOCKS['BLOCK_S']} x {MEMORY_BLOCKS['BLOCK_W']}, {MEMORY_WARPS} warps"
        kernel = kernels.attention_memory_backward_kernel
        yield Case("attention", kernel, storage, form, constants, memory_types(storage), MEMORY_WARPS)


def memory_types(storage: str) -> dict[str, str]:
    """Types of the arguments of attention that have the type of its memory."""
    names = ("p_query", "p_keys", "p_values", "p_context", "p_dcontext", "p_dquery", "p_dkeys")
    return dict.fromkeys(names, f"*{storage}")


def step_cases() -> Iterator[Case]:
    """One step of GRU, LSTM and ATR: a usual size with and without layer norm, and the largest size."""
    from nmt.ops.atr import triton as atr
    from nmt.ops.gru import triton as gru
    from nmt.ops.lstm import triton as lstm
    from nmt.ops.triton_rows import MOST_CHANNELS, row_launch

    atr_options = {"GATES": "twin", "TANH_CANDIDATE": False, "TANH_STATE": False}
    kernels: list[tuple[str, Any, dict[str, Any]]] = [
        ("gru", gru.gru_gates_forward_kernel, {}),
        ("gru", gru.gru_state_forward_kernel, {}),
        ("gru", gru.gru_state_backward_kernel, {}),
        ("gru", gru.gru_gates_backward_kernel, {}),
        ("lstm", lstm.lstm_forward_kernel, {}),
        ("lstm", lstm.lstm_backward_kernel, {}),
        ("atr", atr.atr_step_forward_kernel, atr_options),
        ("atr", atr.atr_step_backward_kernel, atr_options),
    ]
    names = ("p_u", "p_v", "p_reset", "p_narrow", "p_pending", "p_dv", "p_dreset", "p_du", "p_dq")
    for (unit, kernel, options), storage in itertools.product(kernels, STORAGES):
        for hidden, normalized in ((512, True), (512, False), (MOST_CHANNELS, True)):
            launch = row_launch(hidden)
            constants = options | {"NORMALIZED": normalized, "BLOCK": launch["BLOCK"]}
            flags = {"MASKED", "PENDING", "ADDED"} & set(kernel.arg_names)
            absent = set() if normalized else {"p_scale", "p_offset", "p_cscale", "p_coffset"} & set(kernel.arg_names)
            constants |= dict.fromkeys(flags, True) | dict.fromkeys(absent)
            form = f"H {hidden}, {launch['num_warps']} warps, layer norm" if normalized else f"H {hidden}"
            yield Case(unit, kernel, storage, form, constants, dict.fromkeys(names, f"*{storage}"), launch["num_warps"])


def loss_cases() -> Iterator[Case]:
    """The loss: rows of a large and of a small vocabulary, whose sizes need not be multiples of 16."""
    from nmt.ops.linear_cross_entropy.triton import LONGEST_BLOCK, WARPS, loss_gradient_kernel

    types = {"p_target": "*i64", "confidence": "fp32", "rest": "fp32", "constant": "fp32"}
    for storage, block in itertools.product(STORAGES, (LONGEST_BLOCK, 512)):
        constants = {"GRADIENT": True, "BLOCK": block}
        stored = types | {"p_logits": f"*{storage}"}
        case = Case("loss", loss_gradient_kernel, storage, f"block {block}", constants, stored, WARPS, odd=("V",))
        yield case._replace(instructions=VECTORS) if block == LONGEST_BLOCK else case


def dropout_cases() -> Iterator[Case]:
    """Dropout."""
    from nmt.ops.dropout.triton import BLOCK, WARPS, dropout_mask_kernel

    types = {"p_places": "*i64", "scale": "fp32"}
    for storage in STORAGES:
        constants, form = {"BLOCK": BLOCK}, f"block {BLOCK}"
        yield Case("dropout", dropout_mask_kernel, storage, form, constants, types, WARPS)


def all_cases() -> Iterator[Case]:
    """Every kernel in every form."""
    for cases in (scan_cases, atr_cases, step_cases, attention_cases, loss_cases, dropout_cases):
        yield from cases()
