"""Texts to sparse features, and the fitted pipeline as plain arrays.

    x_j = (1 + ln tf_j) * idf_j,   idf_j = ln((1 + n) / (1 + df_j)) + 1,   then x / |x|

with tf_j the count of term j in the text and df_j the number of the n training texts that hold it. Tokens and counts
are scikit-learn's CountVectorizer or HashingVectorizer, the weights its TfidfTransformer; written here is only the way
to and from disk. A saved pipeline is a list of terms, the vector idf and a few checked parameters: no pickle, no code,
and no regular expression of a stranger (it could run for ever), hence `min_token_length` in place of a token pattern.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer

from longtail import check, content
from longtail.errors import InputError, ModelError
from longtail.matrix import MAX_COLUMNS, canonical_csr

KINDS = ("tfidf", "hashing")
ANALYZERS = ("word", "char", "char_wb")
NORMS = ("l2", "l1", "none")
MAX_NGRAM = 64
MAX_TOKEN_LENGTH = 64
_FLAGS = ("sublinear_tf", "idf", "lowercase")


class TextFeatures(TransformerMixin, BaseEstimator):
    """tf-idf features of texts, fitted on the training texts only and carried by the dataset and by the model.

    The defaults suit titles of five words and articles of five thousand: `sublinear_tf` keeps a word said fifty times
    from drowning the rest of a long text and changes nothing in a short one; `idf` takes the place of a list of stop
    words in any language; unit length (`norm`) makes long and short texts comparable, and one C right for both. Words
    of one character stay, since "type I", "vitamin C" and "hepatitis B" differ by nothing else.

    Parameters
    ----------
    kind : "tfidf" learns the vocabulary, so that explanations can name words; "hashing" has no names, but a fixed size.
    analyzer : "word"; "char_wb", characters within words (typing errors, compounds, part numbers); "char", also across.
    ngrams : the shortest and longest run of tokens that make a term; (3, 5) is usual for characters.
    min_df : terms in fewer training texts are dropped ("tfidf" only).
    max_features : keep only this many terms, the most frequent ones ("tfidf" only); None keeps all.
    min_token_length : shorter words are ignored ("word" only).
    sublinear_tf : count a word said n times as 1 + log n.
    idf : weigh words by how few texts have them.
    norm : what every row is scaled to: "l2" (unit length), "l1" (unit sum) or "none".
    lowercase : take upper and lower case as the same.
    n_hash_features : number of columns ("hashing" only).
    """

    def __init__(
        self,
        kind: str = "tfidf",
        *,
        analyzer: str = "word",
        ngrams: tuple[int, int] = (1, 1),
        min_df: int = 1,
        max_features: int | None = None,
        min_token_length: int = 1,
        sublinear_tf: bool = True,
        idf: bool = True,
        norm: str = "l2",
        lowercase: bool = True,
        n_hash_features: int = 2**18,
    ) -> None:
        self.kind = kind
        self.analyzer = analyzer
        self.ngrams = ngrams
        self.min_df = min_df
        self.max_features = max_features
        self.min_token_length = min_token_length
        self.sublinear_tf = sublinear_tf
        self.idf = idf
        self.norm = norm
        self.lowercase = lowercase
        self.n_hash_features = n_hash_features

    # --- fitting and using -------------------------------------------------------------------------------------------

    def fit(self, texts: Iterable[str], y: Any = None) -> TextFeatures:
        """Learn the vocabulary and its weights from the training texts."""
        self._fit(texts)
        return self

    def fit_transform(self, texts: Iterable[str], y: Any = None, **params: Any) -> csr_array:
        """`fit(texts).transform(texts)`, reading the texts once."""
        return self._weigh(self._fit(texts))

    def transform(self, texts: Iterable[str]) -> csr_array:
        """One row of features per text; terms that the training texts did not have are ignored."""
        self._check_fitted()
        texts = text_list(texts)
        if not texts:
            return csr_array((0, self.n_features), dtype=np.float32)
        return self._weigh(self.counter_.transform(texts))

    def feature_names(self) -> list[str] | None:
        """The term of each column; None for hashing, which forgets them."""
        self._check_fitted()
        return self.counter_.get_feature_names_out().tolist() if self.kind == "tfidf" else None

    @property
    def n_features(self) -> int:
        """Number of columns of X."""
        self._check_fitted()
        return int(self.weights_.n_features_in_)

    def same_as(self, other: Any) -> bool:
        """Whether `other` is a fitted TextFeatures that makes the same X of every text."""
        if self is other:
            return True
        if not isinstance(other, TextFeatures) or not (self.is_fitted and other.is_fitted):
            return False
        (mine, parameters), (others, other_parameters) = self.to_arrays(), other.to_arrays()
        return parameters == other_parameters and all(np.array_equal(mine[name], others[name]) for name in mine)

    def _fit(self, texts: Iterable[str]) -> Any:
        self.check_parameters()
        texts = text_list(texts)
        if not texts:
            raise InputError("there is no text to fit the features on; give at least one")
        if self.kind == "tfidf" and self.min_df > len(texts):
            raise InputError(
                f"min_df={self.min_df} keeps terms of at least that many texts, but there are {len(texts)}; lower it"
            )
        counter = self._counter()
        try:
            counts = counter.fit_transform(texts)
        except ValueError:  # what CountVectorizer says of an empty vocabulary
            counts = None
        if counts is None or not counts.nnz:
            raise InputError(
                f"no term is left of {len(texts)} text(s) with analyzer={self.analyzer!r}, ngrams={self.ngrams}, "
                f"min_df={self.min_df}, min_token_length={self.min_token_length}; lower these, or check the texts"
            )
        self.counter_, self.weights_ = counter, self._weights().fit(counts)
        return counts

    def _weigh(self, counts: Any) -> csr_array:
        return canonical_csr(self.weights_.transform(counts, copy=False))

    def _counter(self, vocabulary: dict[str, int] | None = None) -> CountVectorizer | HashingVectorizer:
        pattern = rf"(?u)\b\w{{{self.min_token_length},}}\b" if self.analyzer == "word" else None
        shared: dict[str, Any] = {
            "analyzer": self.analyzer,
            "ngram_range": tuple(self.ngrams),
            "lowercase": self.lowercase,
            "token_pattern": pattern,
            "dtype": np.float32,
        }
        if self.kind == "hashing":  # signs would cancel counts, and the logarithm of a negative one does not exist
            return HashingVectorizer(n_features=self.n_hash_features, alternate_sign=False, norm=None, **shared)
        return CountVectorizer(min_df=self.min_df, max_features=self.max_features, vocabulary=vocabulary, **shared)

    def _weights(self) -> TfidfTransformer:
        norm = None if self.norm == "none" else self.norm
        return TfidfTransformer(norm=norm, use_idf=self.idf, sublinear_tf=self.sublinear_tf)

    def check_parameters(self) -> None:
        check.choice(self, "kind", KINDS)
        check.choice(self, "analyzer", ANALYZERS)
        check.choice(self, "norm", NORMS)
        for flag in _FLAGS:
            if not isinstance(value := getattr(self, flag), bool):
                raise InputError(
                    f"The '{flag}' parameter of TextFeatures must be True or False. Got {value!r} instead."
                )
        ngrams = self.ngrams
        if (
            not isinstance(ngrams, tuple | list)
            or [type(n) for n in ngrams] != [int, int]
            or not 1 <= ngrams[0] <= ngrams[1] <= MAX_NGRAM
        ):
            raise InputError(
                f"The 'ngrams' parameter of TextFeatures must be two whole numbers from 1 to {MAX_NGRAM}, the shortest "
                f"and the longest. Got {ngrams!r} instead."
            )
        for name in ("min_df", "max_features", "min_token_length", "n_hash_features"):
            if name != "max_features" or self.max_features is not None:
                check.number(self, name, least=1, whole=True)
        for name, most in (("min_token_length", MAX_TOKEN_LENGTH), ("n_hash_features", MAX_COLUMNS)):
            if getattr(self, name) > most:
                raise InputError(
                    f"The '{name}' parameter of TextFeatures must be at most {most}. Got {getattr(self, name)} instead."
                )

    @property
    def is_fitted(self) -> bool:
        return hasattr(self, "weights_")

    def __sklearn_is_fitted__(self) -> bool:
        return self.is_fitted

    def _check_fitted(self) -> None:
        if not self.is_fitted:
            raise InputError("these text features are not fitted yet; call fit(texts) with the training texts first")

    # --- to disk and back --------------------------------------------------------------------------------------------

    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The fitted pipeline as arrays (their names begin with `text_`) and JSON parameters."""
        self._check_fitted()
        arrays: dict[str, np.ndarray] = {}
        if self.kind == "tfidf":
            packed = content.pack_strings(self.feature_names())
            arrays = {f"text_vocabulary_{part}": array for part, array in packed.items()}
        if self.idf:
            arrays["text_idf"] = self.weights_.idf_
        parameters = self.get_params(deep=False)
        return arrays, {name: _plain(value) for name, value in parameters.items()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], meta: Any, where: Path) -> TextFeatures:
        """The pipeline of `to_arrays`, or a ModelError that names the manifest `where` if anything is amiss."""
        if not isinstance(meta, Mapping) or set(meta) != set(cls._get_param_names()):
            raise ModelError(
                where, f"text features must have exactly the parameters {', '.join(cls._get_param_names())}"
            )
        features = cls(**meta)
        try:
            features.check_parameters()
        except InputError as error:
            raise ModelError(where, f"text features cannot be used: {error}") from None
        features.ngrams = tuple(features.ngrams)  # type: ignore[assignment]  # JSON has no tuples
        vocabulary = _vocabulary(arrays, where) if features.kind == "tfidf" else None
        n_features = features.n_hash_features if vocabulary is None else len(vocabulary)
        features.counter_, features.weights_ = features._counter(vocabulary), features._weights()
        features.weights_.n_features_in_ = n_features
        if features.idf:
            features.weights_.idf_ = _idf(arrays, n_features, where)
        return features


def _vocabulary(arrays: dict[str, np.ndarray], where: Path) -> dict[str, int]:
    utf8 = content.take(arrays, "text_vocabulary_utf8", "|u1", 1, where)
    offsets = content.take(arrays, "text_vocabulary_offsets", "<i8", 1, where)
    terms = content.unpack_strings(utf8, offsets, "text_vocabulary", where)
    vocabulary = {term: j for j, term in enumerate(terms)}
    if not terms or len(vocabulary) != len(terms):
        raise ModelError(where, "text_vocabulary is empty or holds a term twice")
    return vocabulary


def _idf(arrays: dict[str, np.ndarray], n_features: int, where: Path) -> np.ndarray:
    idf = content.take(arrays, "text_idf", "<f4", 1, where)
    if idf.size != n_features:
        raise ModelError(where, f"text_idf has {idf.size:,} weights for {n_features:,} features")
    if not np.isfinite(idf).all():
        raise ModelError(where, "text_idf holds NaN or infinity")
    return idf


def _plain(value: Any) -> Any:
    """A parameter as JSON spells it (NumPy's numbers are welcome as parameters, too)."""
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return value.item() if isinstance(value, np.generic) else value


def text_list(texts: Any) -> list[str]:
    """`texts` as a list of str, or an InputError that says what was passed instead."""
    if isinstance(texts, str | bytes):
        raise InputError("a single text was passed where several are expected; pass a list: [text]")
    if isinstance(texts, Mapping) or not isinstance(texts, Iterable):
        raise InputError(f"texts must be a list of str, but {type(texts).__name__} was passed; pass a list of texts")
    texts = list(texts)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(
                f"text {i} is {type(text).__name__}, not str; convert it, or put '' where a text is missing"
            )
    return texts
