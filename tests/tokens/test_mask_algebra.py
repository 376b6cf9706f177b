"""`TokenMask` is a set of ints: it agrees with Python's own sets in every operation."""

import copy
import operator
from collections.abc import Callable, Set
from types import SimpleNamespace
from typing import Any

import kit
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hfppl.errors import VocabularyError
from hfppl.tokens import Masks, Token, TokenMask, Vocabulary

SIZE = 12
HOLES = {3, 7}
WHOLE = kit.vocabulary(*(chr(97 + i) for i in range(SIZE)))
PARTIAL = kit.vocabulary(*(None if i in HOLES else chr(97 + i) for i in range(SIZE)), n_logits=SIZE - 2)
EXISTING = {id(WHOLE): set(range(SIZE)), id(PARTIAL): set(range(SIZE - 2)) - HOLES}

vocabularies = st.sampled_from([WHOLE, PARTIAL])
id_sets = st.sets(st.integers(0, SIZE - 1))


def pair(vocabulary: Vocabulary, ids: Set[int]) -> tuple[TokenMask, set[int]]:
    return TokenMask.from_ids(vocabulary, ids), ids & EXISTING[id(vocabulary)]


def agree(mask: Any, ids: Set[int]) -> None:
    assert isinstance(mask, TokenMask)
    assert mask == ids
    assert ids == mask
    assert not mask.allowed.flags.writeable


OPERATORS = [operator.and_, operator.or_, operator.xor, operator.sub]
COMPARISONS = [operator.eq, operator.ne, operator.le, operator.lt, operator.ge, operator.gt]


@pytest.mark.parametrize("operation", OPERATORS)
@settings(max_examples=60, deadline=None)
@given(vocabulary=vocabularies, left=id_sets, right=id_sets)
def test_operators(
    operation: Callable[[Any, Any], Any], vocabulary: Vocabulary, left: set[int], right: set[int]
):
    (left_mask, left), (right_mask, right_there) = pair(vocabulary, left), pair(vocabulary, right)
    expected = operation(left, right_there)
    agree(operation(left_mask, right_mask), expected)
    agree(operation(left_mask, right), expected)
    agree(operation(left_mask, frozenset(right)), expected)
    agree(operation(left_mask, dict.fromkeys(right).keys()), expected)
    reflected = operation(right_there, left)
    agree(operation(right, left_mask), reflected)
    agree(operation(frozenset(right), left_mask), reflected)


@pytest.mark.parametrize("comparison", COMPARISONS)
@settings(max_examples=40, deadline=None)
@given(left=id_sets, right=id_sets)
def test_comparisons(comparison: Callable[[Any, Any], bool], left: set[int], right: set[int]):
    (left_mask, _), (right_mask, _) = pair(WHOLE, left), pair(WHOLE, right)
    expected = comparison(left, right)
    assert comparison(left_mask, right_mask) == expected
    assert comparison(left_mask, right) == expected
    assert comparison(left, right_mask) == expected


@settings(max_examples=60, deadline=None)
@given(vocabulary=vocabularies, left=id_sets, right=id_sets, third=id_sets)
def test_named_operations_take_any_iterables(vocabulary, left: set[int], right: set[int], third: set[int]):
    mask, left = pair(vocabulary, left)
    there = EXISTING[id(vocabulary)]
    agree(mask.union(right, list(third)), left | ((right | third) & there))
    agree(mask.intersection(iter(right), third), left & right & third)
    agree(mask.difference(right, np.array(sorted(third), dtype=np.int64)), left - right - third)
    agree(mask.union(), left)
    assert mask.isdisjoint(right) == left.isdisjoint(right)


@settings(max_examples=60, deadline=None)
@given(vocabulary=vocabularies, ids=id_sets)
def test_a_mask_is_a_set(vocabulary: Vocabulary, ids: set[int]):
    mask, ids = pair(vocabulary, ids)
    assert list(mask) == sorted(ids)
    assert all(type(i) is int for i in mask)
    assert len(mask) == len(ids)
    assert bool(mask) == bool(ids)
    assert {i for i in range(-3, SIZE + 3) if i in mask} == ids
    assert {i for i in range(SIZE) if np.int64(i) in mask} == ids
    assert hash(mask) == hash(TokenMask.from_ids(vocabulary, sorted(ids)))
    assert hash(mask) == hash(frozenset(ids))
    assert copy.deepcopy(mask) is mask


@settings(max_examples=60, deadline=None)
@given(vocabulary=vocabularies, ids=id_sets)
def test_a_complement_brings_back_nothing_that_does_not_exist(vocabulary: Vocabulary, ids: set[int]):
    mask, ids = pair(vocabulary, ids)
    there = EXISTING[id(vocabulary)]
    agree(~mask, there - ids)
    agree(~~mask, ids)
    agree(mask | ~mask, there)
    agree(mask ^ set(range(SIZE)), there - ids)
    agree(set(range(SIZE)) - mask, there - ids)


def test_a_mask_given_as_a_row_loses_what_does_not_exist():
    agree(TokenMask(PARTIAL, np.ones(SIZE, dtype=bool)), EXISTING[id(PARTIAL)])
    agree(TokenMask.from_ids(PARTIAL, np.ones(SIZE, dtype=bool)), EXISTING[id(PARTIAL)])


@pytest.mark.parametrize(
    "row",
    [np.ones(SIZE - 1, dtype=bool), np.ones(SIZE), np.ones((SIZE, 1), dtype=bool), np.ones(0, dtype=bool)],
)
def test_a_row_of_another_shape_is_refused(row: np.ndarray):
    with pytest.raises(VocabularyError):
        TokenMask(WHOLE, row)


@pytest.mark.parametrize("ids", [[-1], [SIZE], [0, 10**6], ["a"], "a", b"a", [1.0], [None], [2**70], 5])
def test_what_is_no_id_is_refused(ids: Any):
    with pytest.raises(VocabularyError):
        TokenMask.from_ids(WHOLE, ids)


def test_membership_of_anything_else_is_false():
    mask = TokenMask.from_ids(WHOLE, [0, 1])
    for other in ("a", b"a", 0.5, None, (), -1, 2**70):
        assert other not in mask


# --- two vocabularies

OTHER = kit.vocabulary(*(chr(65 + i) for i in range(SIZE)))
SAME = kit.vocabulary(*(chr(97 + i) for i in range(SIZE)))


@pytest.mark.parametrize("operation", OPERATORS)
def test_masks_of_another_vocabulary_are_refused(operation: Callable[[Any, Any], Any]):
    mask, foreign = TokenMask.from_ids(WHOLE, [0]), TokenMask.from_ids(OTHER, [0])
    with pytest.raises(VocabularyError, match="another vocabulary"):
        operation(mask, foreign)
    assert mask != foreign


def test_tokens_of_another_vocabulary_are_refused():
    mask = TokenMask.from_ids(WHOLE, [0])
    foreign = Token(kit.FakeLM(OTHER), 0)
    with pytest.raises(VocabularyError, match="another vocabulary"):
        _ = foreign in mask
    for make in (
        lambda: TokenMask.from_ids(WHOLE, [foreign]),
        lambda: mask | {foreign},
        lambda: mask.union([1, foreign]),
    ):
        with pytest.raises(VocabularyError, match="another vocabulary"):
            make()


def test_an_equal_vocabulary_of_another_language_model_is_the_same():
    mask = TokenMask.from_ids(WHOLE, [0, 2])
    assert mask == TokenMask.from_ids(SAME, [0, 2])
    agree(mask & TokenMask.from_ids(SAME, [2, 3]), {2})
    token = Token(kit.FakeLM(SAME), 2)
    assert token in mask
    agree(TokenMask.from_ids(WHOLE, [token, 5]), {2, 5})


def test_a_mask_shows_its_first_tokens():
    assert repr(TokenMask.from_ids(WHOLE, range(SIZE))) == (
        "<TokenMask of 12 tokens: 'a', 'b', 'c', 'd', 'e', 'f', ...>"
    )
    assert repr(TokenMask.from_ids(WHOLE, [1])) == "<TokenMask of 1 tokens: 'b'>"


def test_ids_of_elsewhere_cannot_enter_an_intersection_or_a_difference() -> None:
    vocabulary = kit.vocabulary("a", "b", "c")
    mask = TokenMask.from_ids(vocabulary, [0, 1])
    assert {0, 99} & mask == {0}
    assert mask & {0, 99, -1} == {0}
    assert mask - {0, 99} == {1}
    with pytest.raises(VocabularyError):
        mask | {99}


def test_the_other_methods_of_a_set() -> None:
    mask = TokenMask.from_ids(kit.vocabulary("a", "b", "c"), [0, 1])
    assert mask.issubset({0, 1, 99})
    assert not mask.issubset([0])
    assert mask.issuperset([1])
    assert not mask.issuperset({1, 99})
    assert mask.symmetric_difference([1, 2]) == {0, 2}
    assert mask.copy() is mask


def test_booleans_are_no_ids() -> None:
    vocabulary = kit.vocabulary("a", "b", "c")
    with pytest.raises(VocabularyError, match="True and False"):
        TokenMask.from_ids(vocabulary, [True, False, True])
    assert TokenMask.from_ids(vocabulary, np.array([True, False, True])) == {0, 2}


def test_masks_of_a_language_model() -> None:
    lm = SimpleNamespace(vocabulary=kit.vocabulary("a", "b", "."), eos_token_ids={2})
    masks = Masks(lm)
    assert {2} == masks.EOS
    lm.eos_token_ids = {1}
    assert {1} == masks.EOS
