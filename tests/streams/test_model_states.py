import json
from collections import Counter, OrderedDict, defaultdict, deque

import pytest
from river import drift, stats

from streams.model_states import NotStorableError, dumped, is_storable, restored
from streams.series_models import DriftModel


class Stranger:
    """A class that is on no list."""


def through(value: object) -> object:
    """The value as an attribute of a model, after a dump and back."""
    model = DriftModel(value)
    back = restored(dumped(model))
    assert isinstance(back, DriftModel)
    held: object = back.estimator
    return held


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        2**70,
        -0.0,
        0.1 + 0.2,
        float("inf"),
        "text",
        (1, (2.0, "x")),
        [1, [2, []]],
        {"a": {1: 2.0}, 3: [4]},
        deque([1, 2], maxlen=5),
        deque([1]),
        frozenset({"b"}),
        Counter({"a": 2}),
        OrderedDict([("b", 1), ("a", 2)]),
        defaultdict(float, {"a": 1.0}),
        defaultdict(stats.Min),
    ],
)
def test_values_come_back_the_same(value: object) -> None:
    back = through(value)
    assert back == value
    assert type(back) is type(value)
    assert repr(back) == repr(value)
    assert getattr(back, "maxlen", None) == getattr(value, "maxlen", None)


def test_a_set_has_one_text_whatever_order_a_process_gives_it() -> None:
    texts = frozenset({"b", "a", "c"})
    assert through(texts) == texts
    state = json.loads(dumped(DriftModel(texts)))["state"]
    assert ["frozenset", "a", "b", "c"] in [value for _, value in state[2]]


def test_what_is_shared_stays_shared() -> None:
    mean = stats.Mean()
    back = through([mean, mean, [mean]])
    assert isinstance(back, list)
    assert back[0] is back[1] is back[2][0]


def test_a_thing_that_holds_itself_comes_back() -> None:
    ring: list[object] = []
    ring.append(ring)
    back = through(ring)
    assert isinstance(back, list)
    assert back[0] is back


def test_a_bound_method_comes_back_on_its_own_object() -> None:
    detector = drift.PageHinkley()
    back = through(detector)
    assert isinstance(back, drift.PageHinkley)
    assert back._test_drift.__self__ is back  # type: ignore[attr-defined] # a bound method


@pytest.mark.parametrize(
    "value",
    [Stranger(), Stranger, lambda: 1, print, {1, 2}, b"bytes", frozenset({1}), json, object()],
)
def test_what_is_no_data_is_not_stored(value: object) -> None:
    assert not is_storable(DriftModel(value))
    with pytest.raises(NotStorableError):
        dumped(DriftModel(value))


def test_too_deep_is_not_stored() -> None:
    nest: list[object] = []
    for _ in range(5000):
        nest = [nest]
    assert not is_storable(DriftModel(nest))


def changed(**fields: object) -> str:
    state = json.loads(dumped(DriftModel(drift.ADWIN())))  # type: ignore[no-untyped-call] # river's
    return json.dumps(state | fields)


@pytest.mark.parametrize(
    "state",
    [
        "",
        "[]",
        "{}",
        changed(version=2),
        changed(river="0.1.0"),
        changed(state=["object", "os:system", []]),
        changed(state=["object", "subprocess:Popen", []]),
        changed(state=["object", "river.stats.mean:Mean.update", []]),
        changed(state=["object", "streams.series_models:scored", []]),
        changed(state=["class", "os:PathLike"]),
        changed(state=["rust", "os:system", None]),
        changed(state=["rust", "river.drift.adwin:ADWIN", None]),
        changed(state=["method", "__class__", ["list"]]),
        changed(state=["same", 7]),
        changed(state=["dict", "list", None]),
        changed(state=["import", "os"]),
    ],
)
def test_a_state_names_nothing_but_models(state: str) -> None:
    with pytest.raises(NotStorableError):
        restored(state)
