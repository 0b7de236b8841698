"""Terms of texts: how a text is divided into terms, how terms are counted, and how counts become features.

    x_j = (1 + ln tf_j) * idf_j,   idf_j = ln((1 + n) / (1 + df_j)) + 1,   then x / |x|

where tf_j is the count of term j in the text and df_j the number of the n training texts that contain it. The features
have the same bits as those of scikit-learn's CountVectorizer or HashingVectorizer, and its TfidfTransformer. They take
a third of the time, and scikit-learn is not imported:

- A text is divided into words by a few calls that handle it whole. scikit-learn uses a regular expression.
- The terms of many texts are looked up, sorted and counted together.
- The rows are in canonical form when they are made, so nothing has to be checked or sorted again.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, repeat
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from longtail.matrix import LARGEST_INT32, csr_view

TEXTS_AT_ONCE = 512
HASHES_KEPT = 1 << 20  # columns of hashed terms that are remembered
ASCII = bytes(range(128))
SPACES = re.compile(r"\s\s+")


def _table(lowercase: bool) -> bytes:
    """For bytes.translate of UTF-8: ASCII characters that are no part of words become spaces."""
    signs = (chr(code) if chr(code).isalnum() or chr(code) == "_" else " " for code in range(128))
    return "".join(sign.lower() if lowercase else sign for sign in signs).encode() + bytes(range(128, 256))


_TABLES = {lowercase: _table(lowercase) for lowercase in (False, True)}


def words(text: str, lowercase: bool) -> list[str]:
    """The words of a text: what the regular expression `\\w+` finds."""
    if text.isascii():
        return text.encode().translate(_TABLES[lowercase]).decode().split()
    utf8 = (text.lower() if lowercase else text).encode("utf-8", "surrogatepass")
    for sign in set(utf8.translate(None, ASCII).decode("utf-8", "surrogatepass")):  # the other characters
        if not sign.isalnum():
            utf8 = utf8.replace(sign.encode("utf-8", "surrogatepass"), b" ")
    return utf8.translate(_TABLES[False]).decode("utf-8", "surrogatepass").split()


@dataclass(frozen=True)
class Division:
    """How a text is divided into terms. The fields have the meaning of the parameters of TextFeatures."""

    analyzer: str = "word"
    ngram_range: tuple[int, int] = (1, 1)
    min_token_length: int = 1
    lowercase: bool = True

    @cached_property
    def terms(self) -> Callable[[str], Sequence[str]]:
        """The function that returns the terms of a text, in any order, repeated as often as they occur."""
        if self.analyzer == "word":
            return self._words if tuple(self.ngram_range) == (1, 1) else self._word_ngrams
        return self._characters if self.analyzer == "char" else self._characters_of_words

    def _words(self, text: str) -> list[str]:
        found = words(text, self.lowercase)
        if self.min_token_length == 1:
            return found
        return [word for word in found if len(word) >= self.min_token_length]

    def _word_ngrams(self, text: str) -> list[str]:
        found = self._words(text)
        shortest, longest = self.ngram_range
        terms = list(found) if shortest == 1 else []
        for n in range(max(shortest, 2), min(longest, len(found)) + 1):
            terms += map(" ".join, zip(*(found[i:] for i in range(n)), strict=False))
        return terms

    def _characters(self, text: str) -> list[str]:
        text = SPACES.sub(" ", text.lower() if self.lowercase else text)
        shortest, longest = self.ngram_range
        return [
            text[i : i + n]
            for n in range(shortest, min(longest, len(text)) + 1)
            for i in range(len(text) - n + 1)
        ]  # fmt: skip

    def _characters_of_words(self, text: str) -> list[str]:
        found = (text.lower() if self.lowercase else text).split()
        return list(chain.from_iterable(map(_parts, found, repeat(tuple(self.ngram_range)))))


@lru_cache(1 << 16)
def _parts(word: str, ngram_range: tuple[int, int]) -> list[str]:
    """The n-grams of a word between two spaces. If the word is too short for n, it is its only n-gram of any length."""
    padded = f" {word} "
    shortest, longest = ngram_range
    found = []
    for n in range(shortest, longest + 1):
        if n >= len(padded):
            found.append(padded)
            break
        found += [padded[i : i + n] for i in range(len(padded) - n + 1)]
    return found


# --- counting --------------------------------------------------------------------------------------------------------


def blocks(texts: Iterable[str], size: int = TEXTS_AT_ONCE) -> Iterator[list[str]]:
    """The texts in lists of at most `size`."""
    block: list[str] = []
    for text in texts:
        block.append(text)
        if len(block) == size:
            yield block
            block = []
    if block:
        yield block


def count(
    texts: Sequence[str], terms: Callable[[str], Sequence[str]], columns: Callable[[Iterable[str]], Iterator[int]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Count the terms of a few texts: counts (float32), columns in rising order, and the number of columns per text.

    `columns` gives the column of each of many terms; negative ones are left out.
    """
    found = [terms(text) for text in texts]
    lengths = np.fromiter(map(len, found), np.int64, len(found))
    each = np.fromiter(columns(chain.from_iterable(found)), np.int64, int(lengths.sum()))
    keys = each + np.repeat(np.arange(len(found), dtype=np.int64) << 32, lengths)
    keys, counts = np.unique(keys[each >= 0], return_counts=True)
    per_text = np.bincount(keys >> 32, minlength=len(found))
    return counts.astype(np.float32), (keys & 0xFFFFFFFF).astype(np.int32), per_text


class Counts:
    """Rows of counts, collected a few at a time."""

    def __init__(self) -> None:
        self.parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def rows(self, n_columns: int) -> csr_array:
        """All rows as one matrix."""
        data, indices, lengths = (np.concatenate(arrays) for arrays in zip(*self.parts, strict=True))
        return csr_rows(data, indices, lengths, n_columns)


def csr_rows(data: np.ndarray, indices: np.ndarray, lengths: np.ndarray, n_columns: int) -> csr_array:
    """The rows that `count` found, as a canonical matrix."""
    wide = np.int32 if len(data) <= LARGEST_INT32 else np.int64
    indptr = np.zeros(len(lengths) + 1, wide)
    np.cumsum(lengths, out=indptr[1:])
    return csr_view(data, indices.astype(wide, copy=False), indptr, (len(lengths), n_columns))


def murmurhash3(key: bytes) -> int:
    """The signed 32-bit hash of A. Appleby's MurmurHash3 with seed 0, as scikit-learn's `murmurhash3_32` has it."""

    def turned(number: int, bits: int) -> int:
        return (number << bits | number >> 32 - bits) & 0xFFFFFFFF

    h = 0
    whole = len(key) // 4 * 4
    for start in range(0, len(key), 4):
        k = int.from_bytes(key[start : start + 4], "little")
        h ^= turned(k * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
        if start < whole:
            h = turned(h, 13) * 5 + 0xE6546B64 & 0xFFFFFFFF
    h ^= len(key)
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    h ^= h >> 16
    return h - (h >> 31 << 32)


class _HashedColumns(dict[str, int]):
    """The column of each term by its hash, as in scikit-learn's FeatureHasher.

    A process that trains has imported scikit-learn, whose compiled hash is quicker. One that predicts need not wait for
    the import.
    """

    def __init__(self, n_columns: int) -> None:
        loaded = sys.modules.get("sklearn.utils.murmurhash")
        self.n_columns, self.hash = n_columns, murmurhash3 if loaded is None else loaded.murmurhash3_32

    def __missing__(self, term: str) -> int:
        if len(self) >= HASHES_KEPT:
            self.clear()
        column: int = abs(self.hash(term.encode("utf-8", "surrogatepass"))) % self.n_columns
        self[term] = column
        return column


# --- features --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Terms:
    """What was learned from the training texts, and how texts become features with it."""

    division: Division
    n_columns: int
    vocabulary: Mapping[str, int] | None  # the column of each term; None if columns are hashes of terms
    idf: np.ndarray | None
    sublinear_tf: bool = True
    norm: str = "l2"

    def transform(self, texts: Sequence[str]) -> csr_array:
        """One row of features per text, in canonical form."""
        return self.weigh(self.counts(texts))

    def counts(self, texts: Sequence[str]) -> csr_array:
        counted = Counts()
        for block in blocks(texts):
            counted.parts.append(count(block, self.division.terms, self._columns))
        return counted.rows(self.n_columns) if counted.parts else csr_array((0, self.n_columns), dtype=np.float32)

    def weigh(self, counts: csr_array) -> csr_array:
        """Turn counts into features, in place."""
        X = counts
        if self.sublinear_tf:
            np.log(X.data, X.data)
            X.data += 1.0
        if self.idf is not None:
            X.data *= self.idf[X.indices]
        if self.norm != "none":
            _normalize(X, self.norm)
        return X

    @cached_property
    def names(self) -> list[str] | None:
        """The term of each column."""
        return None if self.vocabulary is None else list(self.vocabulary)

    @cached_property
    def _columns(self) -> Callable[[Iterable[str]], Iterator[int]]:
        if self.vocabulary is None:
            hashed = _HashedColumns(self.n_columns)
            return lambda terms: map(hashed.__getitem__, terms)
        get = self.vocabulary.get
        return lambda terms: map(get, terms, repeat(-1))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_columns"}


def _normalize(X: csr_array, norm: str) -> None:
    """Divide every row by its norm, in place, with the bits of scikit-learn: squares in float32, their sum in float64
    in the order of the columns. `np.bincount` adds in this order."""
    rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    sums = np.bincount(rows, X.data * X.data if norm == "l2" else np.abs(X.data), X.shape[0])
    norms = np.sqrt(sums) if norm == "l2" else sums
    norms[norms == 0] = 1.0
    np.divide(X.data, norms[rows], out=X.data, casting="unsafe")


class Learner:
    """Learns the terms of training texts that come a few at a time.

    Terms are numbered by their first use while texts come. `finish` sorts them and drops the rare ones.
    """

    def __init__(self, division: Division, *, n_hashed: int | None = None) -> None:
        self.division = division
        self.n_hashed = n_hashed  # the number of columns if terms are hashed
        self.n_texts = 0
        self._first: defaultdict[str, int] = defaultdict()
        self._first.default_factory = self._first.__len__
        self._columns = self._first if n_hashed is None else _HashedColumns(n_hashed)
        self._df = np.zeros(n_hashed or 1024, np.int64)
        self._tf = np.zeros(n_hashed or 1024, np.float64)

    def add(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Learn from these texts. Returns their counts, as `count` does, with the first numbers of the terms."""
        counts, columns, lengths = count(texts, self.division.terms, self._numbered)
        self.n_texts += len(texts)
        size = len(self._df) if self.n_hashed else len(self._first)
        if size > len(self._df):
            self._df, self._tf = (np.concatenate([a, np.zeros(size, a.dtype)]) for a in (self._df, self._tf))
        self._df += np.bincount(columns, minlength=len(self._df))
        if self.n_hashed is None:
            self._tf += np.bincount(columns, counts, len(self._tf))
        return counts, columns, lengths

    def _numbered(self, terms: Iterable[str]) -> Iterator[int]:
        return map(self._columns.__getitem__, terms)

    @property
    def n_terms(self) -> int:
        return len(self._first) if self.n_hashed is None else int((self._df > 0).sum())

    def finish(
        self,
        *,
        min_df: int = 1,
        max_features: int | None = None,
        use_idf: bool = True,
        sublinear_tf: bool = True,
        norm: str = "l2",
    ) -> tuple[Terms, np.ndarray | None]:
        """The terms, and the column of each first number: -1 for terms that were dropped. None if nothing moves."""
        vocabulary, column_of = None, None
        df, n_columns = self._df, self.n_hashed or 0
        if self.n_hashed is None:
            terms = sorted(self._first)
            order = np.fromiter(map(self._first.__getitem__, terms), np.int64, len(terms))
            kept = self._kept(order, min_df, max_features)
            vocabulary = {term: j for j, term in enumerate(t for t, keep in zip(terms, kept, strict=True) if keep)}
            n_columns = len(vocabulary)
            column_of = np.full(len(terms), -1, np.int32)
            column_of[order[kept]] = np.arange(n_columns)
            df = df[order[kept]]
        idf = _idf(df, self.n_texts) if use_idf else None
        return Terms(self.division, n_columns, vocabulary, idf, sublinear_tf, norm), column_of

    def _kept(self, order: np.ndarray, min_df: int, max_features: int | None) -> np.ndarray:
        """Which of the sorted terms are kept. Of equally frequent ones, the same as in scikit-learn."""
        kept: np.ndarray = self._df[order] >= min_df
        if max_features is not None and kept.sum() > max_features:
            often = (-self._tf[order].astype(np.float32)[kept]).argsort()[:max_features]
            most = np.flatnonzero(kept)[often]
            kept[:] = False
            kept[most] = True
        return kept


def _idf(df: np.ndarray, n_texts: int) -> np.ndarray:
    """idf of each column, in float32 as in scikit-learn."""
    idf = np.full(len(df), n_texts + 1, np.float32)
    idf /= df.astype(np.float32) + np.float32(1.0)
    np.log(idf, out=idf)
    idf += 1.0
    return idf


def renumbered(
    part: tuple[np.ndarray, np.ndarray, np.ndarray], column_of: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts of `Learner.add` with the columns of `Learner.finish`, in rising order."""
    counts, numbers, lengths = part
    rows = np.repeat(np.arange(len(lengths), dtype=np.int64) << 32, lengths)
    columns = column_of[numbers]
    known = columns >= 0
    keys = (columns + rows)[known]
    order = np.argsort(keys)
    lengths = np.bincount(keys >> 32, minlength=len(lengths))
    return counts[known][order], columns[known][order], lengths
