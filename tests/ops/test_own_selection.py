"""Kernels that a thread chooses for itself, whatever other threads and the process have chosen."""

from __future__ import annotations

import threading

import torch

from nmt.ops.dispatch import Selection, own_selection, selected, selection, set_kernels, use_native
from tests.conftest import HANGS


def test_a_choice_of_ones_own_ends_with_the_block_and_leaves_that_of_the_process() -> None:
    with selected("auto"):
        with own_selection(Selection("reference")):
            assert selection().choice == "reference"
            assert not use_native(torch.zeros(1))
            set_kernels("auto", verified=["sequence lrn"])
            assert selection() == Selection("auto", frozenset({"sequence lrn"}))
            with selected("reference"):
                assert selection().choice == "reference"
            assert selection().verified == {"sequence lrn"}
        assert selection() == Selection("auto")


def test_threads_with_choices_of_their_own_do_not_see_each_other() -> None:
    both_chose = threading.Barrier(2)
    seen: dict[str, str] = {}

    def work(choice: str) -> None:
        with own_selection(Selection()):
            set_kernels(choice)
            both_chose.wait(HANGS)
            seen[choice] = selection().choice

    with selected("auto"):
        threads = [threading.Thread(target=work, args=(choice,)) for choice in ("auto", "reference")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert selection() == Selection("auto")
    assert seen == {"auto": "auto", "reference": "reference"}
