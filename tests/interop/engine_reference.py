"""A plain interpreter of the engine's model files in numpy, which reads what docs/engine_format.md describes."""

from __future__ import annotations

import math
import struct
import zlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
NONE = 0xFFFFFFFF
SOURCE, ONE, STEP = 0, 1, 2
GROUPS = {1: ("<f4", 1), 2: ("<u2", 2), 3: ("i1", 4)}


class Instruction(NamedTuple):
    op: int
    out: tuple[int, int]
    a: tuple[int, int]
    b: tuple[int, int]
    c: tuple[int, int]
    t: tuple[int, int, int, int]
    n: int
    p: int
    f: float


class File:
    """The sections of a file, of which the tables are read."""

    def __init__(self, content: bytes) -> None:
        assert content[:8] == b"\x89NMT\r\n\x1a\n"
        version, count, size, crc, zero = struct.unpack_from("<IIQII", content, 8)
        assert (size, zero) == (len(content), 0)
        assert crc == zlib.crc32(content[32:])
        self.sections: dict[str, bytes] = {}
        self.places: list[tuple[int, int]] = []
        for i in range(count):
            name, none, offset, length = struct.unpack_from("<4sIQQ", content, 32 + 24 * i)
            assert none == 0
            self.sections[name.decode("ascii")] = content[offset : offset + length]
            self.places.append((offset, length))
        settings = struct.unpack("<7If4I16s", self.sections["SETT"])
        self.vocabularies, self.table, self.features = settings[:2], settings[2], settings[3]
        self.attentions, self.caches, self.beam_size = settings[4:7]
        self.length_penalty, self.offset, self.longest = settings[7:10]
        self.bias = settings[10] - 1 if settings[10] else None
        self.multiple = settings[11] + 1
        assert settings[12] == bytes(16)
        self.registers = list(struct.iter_unpack("<2I", self.sections["REGS"]))
        self.states = list(struct.iter_unpack("<3I", self.sections["STAT"]))
        self.programs = {name: _instructions(self.sections[name]) for name in ("ENCO", "STEP")}
        later = self.bias is not None or self.multiple > 1
        sigmoid = any(one.op == 30 and one.p > 1 for program in self.programs.values() for one in program)
        assert version == (2 if later or sigmoid else 1)
        self.kinds: list[int] = []
        self.tensors = [self._tensor(*entry) for entry in struct.iter_unpack("<4I3Q", self.sections["TENS"])]

    def _tensor(self, kind: int, rows: int, columns: int, zero: int, values: int, scales: int, sums: int) -> Array:
        assert zero == 0 and values % 64 == 0
        self.kinds.append(kind)
        data = self.sections["DATA"]
        if kind == 0:
            assert rows == 1
            return np.frombuffer(data, "<f4", columns, values).astype(np.float64)
        dtype, group = GROUPS[kind]
        m, k = np.arange(rows)[:, None], np.arange(columns)[None]
        groups = -(-columns // group)
        places = ((m // 32) * groups + k // group) * 32 * group + (m % 32) * group + k % group
        stored = np.frombuffer(data, dtype, -(-rows // 32) * 32 * groups * group, values)
        assert stored.size == places.size or not np.delete(stored, places.ravel()).any()
        found = stored[places]
        if kind == 2:
            return (found.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        if kind == 3:
            assert (np.frombuffer(data, "<i4", rows, sums) == found.astype(np.int32).sum(1)).all()
            return np.asarray(found * np.frombuffer(data, "<f4", rows, scales).astype(np.float64)[:, None])
        return found.astype(np.float64)


def _instructions(section: bytes) -> list[Instruction]:
    found = []
    for x in struct.iter_unpack("<14Iif", section):
        found.append(Instruction(x[0], x[1:3], x[3:5], x[5:7], x[7:9], x[9:13], *x[13:]))
    return found


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def _apart(operand: int, out: int, operand_width: int, out_width: int) -> bool:
    """Whether these columns of a register are others; an operand has at least so many."""
    return operand + operand_width <= out or out + out_width <= operand


class Search:
    """One sentence, of which one hypothesis is continued."""

    def __init__(self, file: File, source: list[int]) -> None:
        self.file, self.source = file, source
        rows = {SOURCE: len(source), ONE: 1, STEP: 1}
        # what must be written before it is read begins with NaN
        self.values = [
            np.full((rows[space], width), 0.0 if space == ONE else np.nan) for space, width in file.registers
        ]
        self.caches: list[tuple[list[Array], list[Array]]] = [([], []) for _ in range(file.caches)]
        self.attention: dict[int, Array] = {}
        self.words = 0
        self.token: int | None = None
        with np.errstate(over="ignore"):
            self._run("ENCO")
        for read, _, first in file.states:
            self.values[read] = self.values[first].copy()

    def step(self, token: int | None) -> Array:
        """Logits of the next word after this one."""
        self.token = token
        with np.errstate(over="ignore"):
            self._run("STEP")
        for read, written, _ in self.file.states:
            self.values[read] = self.values[written].copy()
        self.words += 1
        logits = self.values[self.file.features][0] @ self.file.tensors[self.file.table].T
        return np.asarray(logits if self.file.bias is None else logits + self.file.tensors[self.file.bias])

    def _run(self, program: str) -> None:
        instructions, place = self.file.programs[program], 0
        while place < len(instructions):
            one = instructions[place]
            place += 1
            if one.op == 11:
                inside = instructions[place : place + one.n]
                order = range(len(self.source))
                for row in reversed(order) if one.p else order:
                    for each in inside:
                        self._one(each, row)
                place += one.n
            else:
                self._one(one, None)

    def _get(self, place: tuple[int, int], width: int, row: int | None) -> Array:
        register, column = place
        space, total = self.file.registers[register]
        assert column + width <= total
        value = self.values[register][:, column : column + width]
        return value[row : row + 1] if space == SOURCE and row is not None else value

    def _one(self, one: Instruction, row: int | None) -> None:
        width = {2: lambda: len(self.file.tensors[one.t[0]])}.get(one.op, lambda: one.n)()
        width *= 2 if one.op in (22, 23, 30) else 1
        out = self._get(one.out, width, row)
        for place in (one.a, one.b, one.c):
            assert place == one.out or place[0] != one.out[0] or _apart(place[1], one.out[1], one.n, width)
        out[:] = getattr(self, f"_op{one.op}")(one, row)

    def _operands(self, one: Instruction, row: int | None, *widths: int) -> list[Array]:
        found = zip((one.a, one.b, one.c), widths, strict=False)
        return [self._get(place, width, row) for place, width in found if width]

    def _vector(self, one: Instruction, number: int) -> Array:
        return self.file.tensors[one.t[number]]

    def _op1(self, one: Instruction, row: int | None) -> Array:
        if self.file.registers[one.out[0]][0] == SOURCE:
            return np.asarray(one.f * (self._vector(one, 0)[self.source] + self._vector(one, 1)))
        if self.token is None:
            return np.zeros((1, one.n))
        return np.asarray(one.f * (self._vector(one, 0)[[self.token]] + self._vector(one, 1)))

    def _op2(self, one: Instruction, row: int | None) -> Array:
        weight = self._vector(one, 0)
        (a,) = self._operands(one, row, weight.shape[1])
        found = a @ weight.T + (0 if one.t[1] == NONE else self._vector(one, 1))
        erf = np.vectorize(math.erf)
        return [
            lambda: found,
            lambda: np.maximum(found, 0),
            lambda: np.tanh(found),
            lambda: found * sigmoid(found),
            lambda: 0.5 * found * (1 + erf(found / math.sqrt(2))),
        ][one.p]()

    def _op3(self, one: Instruction, row: int | None) -> Array:
        (a,) = self._operands(one, row, one.n)
        centred = a - a.mean(1, keepdims=True)
        normed = centred / np.sqrt((centred**2).mean(1, keepdims=True) + one.f)
        return np.asarray(self._vector(one, 0) * normed + self._vector(one, 1))

    def _op4(self, one: Instruction, row: int | None) -> Array:
        (a,) = self._operands(one, row, one.n)
        return np.asarray(self._vector(one, 0) * a / np.sqrt((a**2).mean(1, keepdims=True) + one.f))

    def _op5(self, one: Instruction, row: int | None) -> Array:
        a, b = self._operands(one, row, one.n, one.n)
        return np.asarray(a + b)

    def _op6(self, one: Instruction, row: int | None) -> Array:
        return np.asarray(self._operands(one, row, one.n)[0] + self._vector(one, 0))

    def _op7(self, one: Instruction, row: int | None) -> Array:
        return self._operands(one, row, one.n)[0]

    def _op8(self, one: Instruction, row: int | None) -> Array:
        return np.tanh(self._operands(one, row, one.n)[0])

    def _op9(self, one: Instruction, row: int | None) -> Array:
        a, b = self._operands(one, row, one.n, one.n)
        return np.asarray(a * sigmoid(a) * b)

    def _op10(self, one: Instruction, row: int | None) -> Array:
        assert row is None
        return self._operands(one, None, one.n)[0][[-one.p]]

    def _op12(self, one: Instruction, row: int | None) -> Array:
        (a,) = self._operands(one, row, one.n)
        is_source = self.file.registers[one.out[0]][0] == SOURCE
        positions = np.arange(len(a)) if is_source else np.array([self.words])
        heads = a.reshape(len(a), one.p, -1)
        half = heads.shape[2] // 2
        angles = (positions[:, None] * 10000.0 ** (-np.arange(half) / half))[:, None]
        first, second = heads[..., :half], heads[..., half:]
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([first * cos - second * sin, first * sin + second * cos], 2).reshape(len(a), -1)

    def _op18(self, one: Instruction, row: int | None) -> Array:
        (a,) = self._operands(one, row, one.n)
        is_source = self.file.registers[one.out[0]][0] == SOURCE
        positions = np.arange(len(a)) if is_source else np.array([self.words])
        angles = positions[:, None] * 10000.0 ** (-np.arange(one.n // 2) / one.p)
        return a + np.concatenate([np.sin(angles), np.cos(angles)], 1)

    def _op13(self, one: Instruction, row: int | None) -> Array:
        return np.exp(-2 * self._operands(one, row, one.n)[0])

    def _op14(self, one: Instruction, row: int | None) -> Array:
        a, b, c = self._operands(one, None, one.n, one.n, one.n)
        width = one.n // one.p
        powers = np.exp(-2 * np.clip(a, -35, 35)).reshape(1, one.p, width) * b.reshape(-1, one.p, width)
        scores = (2 * self._vector(one, 0) / (1 + powers)).sum(2)  # [S, heads]
        chosen = softmax(scores.T)
        self.attention[one.t[1]] = chosen
        return np.einsum("hs,shd->hd", chosen, c.reshape(-1, one.p, width)).reshape(1, -1)

    def _dot(self, one: Instruction, a: Array, b: Array, c: Array) -> tuple[Array, Array]:
        a, b, c = (x.reshape(len(x), one.p, -1) for x in (a, b, c))
        chosen = softmax(np.einsum("qhd,shd->qhs", a, b) / np.sqrt(a.shape[2]))
        return np.einsum("qhs,shd->qhd", chosen, c).reshape(len(a), -1), chosen

    def _op15(self, one: Instruction, row: int | None) -> Array:
        found, chosen = self._dot(one, *self._operands(one, None, one.n, one.n, one.n))
        self.attention[one.t[1]] = chosen[0]
        return found

    def _op16(self, one: Instruction, row: int | None) -> Array:
        return self._dot(one, *self._operands(one, None, one.n, one.n, one.n))[0]

    def _op19(self, one: Instruction, row: int | None) -> Array:
        a, b, c = self._operands(one, None, one.n, one.n, one.n)
        return np.concatenate([self._dot(one, a[i : i + 1], b[: i + 1], c[: i + 1])[0] for i in range(len(a))])

    def _op17(self, one: Instruction, row: int | None) -> Array:
        a, b, c = self._operands(one, None, one.n, one.n, one.n)
        keys, values = self.caches[one.t[0]]
        keys.append(b.copy())
        values.append(c.copy())
        return self._dot(one, a, np.concatenate(keys), np.concatenate(values))[0]

    def _parts(
        self, one: Instruction, row: int | None, inputs: int, states: int = 1
    ) -> tuple[list[Array], list[Array]]:
        a, b = self._operands(one, row, inputs * one.n, states * one.n)
        return np.split(a, inputs, 1), np.split(b, states, 1)

    def _op20(self, one: Instruction, row: int | None) -> Array:
        (p, q, r), (h,) = self._parts(one, row, 3)
        found = sigmoid(p + h) * r + sigmoid(q - h) * h
        return np.tanh(found) if one.p else found

    def _op21(self, one: Instruction, row: int | None) -> Array:
        (p, q, r, s), (h,) = self._parts(one, row, 4)
        c = sigmoid(p + h) * r + sigmoid(q - h) * h
        c = np.tanh(c) if one.p else c
        return sigmoid(s - c) * c

    def _op22(self, one: Instruction, row: int | None) -> Array:
        (x_r, x_f, x_c, x_h), (_, c) = self._parts(one, row, 4, 2)
        f, r = sigmoid(x_f + self._vector(one, 0) * c), sigmoid(x_r + self._vector(one, 1) * c)
        c = f * c + (1 - f) * x_c
        return np.concatenate([r * c + (1 - r) * x_h, c], 1)

    def _op23(self, one: Instruction, row: int | None) -> Array:
        (x_f, x_c), (_, c) = self._parts(one, row, 2, 2)
        f = sigmoid(x_f + self._vector(one, 0))
        c = f * c + (1 - f) * x_c
        return np.concatenate([np.maximum(c, 0), c], 1)

    def _op24(self, one: Instruction, row: int | None) -> Array:
        (x_z, x_h), (h,) = self._parts(one, row, 2)
        z, g = sigmoid(x_z + self._vector(one, 0)), x_h + self._vector(one, 1)
        g = np.where(g >= 0, g + 0.5, sigmoid(g)) if one.p else g
        return h + z * (g - h)

    def _op25(self, one: Instruction, row: int | None) -> Array:
        (x_f, x_i, x_h), (h,) = self._parts(one, row, 3)
        f, i, g = sigmoid(x_f + self._vector(one, 0)), sigmoid(x_i + self._vector(one, 1)), x_h + self._vector(one, 2)
        g = np.where(g >= 0, g + 0.5, sigmoid(g)) if one.p else g
        return f / (f + i) * h + i / (f + i) * g

    def _op26(self, one: Instruction, row: int | None) -> Array:
        x, h, u = self._operands(one, row, one.n, one.n, one.n)
        q = u + self._vector(one, 0)
        i, f = sigmoid(x + q), sigmoid(x - q)
        gates, activation = divmod(one.p, 3)
        i, f = (1 - f if gates == 1 else i), (1 - i if gates == 2 else f)
        found = i * (np.tanh(x) if activation == 2 else x) + f * h
        return np.tanh(found) if activation == 1 else found

    def _op27(self, one: Instruction, row: int | None) -> Array:
        x, u = self._get(one.a, one.n, row), self._get(one.c, one.n, row)
        total = x + u + self._vector(one, 0)
        return np.maximum(total, 0) if one.p else np.tanh(total)

    def _op28(self, one: Instruction, row: int | None) -> Array:
        x, h, u = self._operands(one, row, 2 * one.n, one.n, 2 * one.n)
        return (sigmoid(x + u + self._vector(one, 0)))[:, one.n :] * h

    def _op29(self, one: Instruction, row: int | None) -> Array:
        x, h, uv = self._operands(one, row, 3 * one.n, one.n, 3 * one.n)
        (x_z, x_r, x_h), (u_z, u_r, v) = np.split(x, 3, 1), np.split(uv, 3, 1)
        b_z, b_r = np.split(self._vector(one, 0), 2)
        z, v = sigmoid(x_z + u_z + b_z), v + self._vector(one, 1)
        g = np.tanh(x_h + (sigmoid(x_r + u_r + b_r) * v if one.p else v))
        return z * h + (1 - z) * g

    def _op30(self, one: Instruction, row: int | None) -> Array:
        x, state, u = self._operands(one, row, 4 * one.n, 2 * one.n, 4 * one.n)
        c = state[:, one.n :]
        i, f, o, g = np.split(x + u + self._vector(one, 0), 4, 1)
        peepholes = one.t[1] != NONE
        if peepholes:
            i, f = i + self._vector(one, 1) * c, f + self._vector(one, 2) * c
        c = sigmoid(i) * np.tanh(g) + sigmoid(f) * c
        o = o + self._vector(one, 3) * c if peepholes else o
        return np.concatenate([sigmoid(o) * (np.tanh(c), c, sigmoid(c))[one.p], c], 1)
