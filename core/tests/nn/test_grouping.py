"""Groups of layers: complete, of one kind each, and nearly equal in size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turret.messages import KVGroupKind
from turret.nn.grouping import MOST_GROUPS, kv_groups


def sizes(windows: list[int | None], longest: int = 4096) -> list[tuple[int | None, int]]:
    return [(group.window, len(group.layers)) for group in kv_groups(windows, longest)]


def test_one_kind_is_one_group() -> None:
    assert sizes([None] * 30) == [(None, 30)]
    assert sizes([64] * 30) == [(64, 30)]


def test_alternating_layers_make_two_groups() -> None:
    assert sizes([64, None] * 13) == [(None, 13), (64, 13)]


def test_nearly_equal_classes_stay_whole() -> None:
    assert sizes([64] * 10 + [None] * 9) == [(None, 9), (64, 10)]


def test_five_to_one_splits_the_sliding_layers() -> None:
    """Gemma 3 1B: 26 layers, every sixth full."""
    windows = [None if (layer + 1) % 6 == 0 else 512 for layer in range(26)]
    assert sizes(windows) == [(None, 4)] + [(512, 4)] * 4 + [(512, 3)] * 2


def test_a_window_beyond_the_longest_context_is_none() -> None:
    assert sizes([4096, None], longest=4096) == [(None, 2)]
    assert sizes([4096, None], longest=4097) == [(None, 1), (4096, 1)]


@given(st.lists(st.sampled_from([None, 8, 16]), min_size=1, max_size=80))
def test_groups_cover_every_layer_once(windows: list[int | None]) -> None:
    groups = kv_groups(windows, 1000)
    assert sorted(layer for group in groups for layer in group.layers) == list(range(len(windows)))
    for group in groups:
        assert {windows[layer] for layer in group.layers} == {group.window}
        assert (group.kind is KVGroupKind.FULL) == (group.window is None)
    assert len(groups) <= MOST_GROUPS
