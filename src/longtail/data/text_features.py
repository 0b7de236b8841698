"""Turns texts into sparse features. The fitted pipeline can be saved as plain arrays.

    x_j = (1 + ln tf_j) * idf_j,   idf_j = ln((1 + n) / (1 + df_j)) + 1,   then x / |x|

where tf_j is the count of term j in the text and df_j the number of the n training texts that contain it. Tokens and
counts come from scikit-learn's CountVectorizer or HashingVectorizer, the weights from its TfidfTransformer. This module
only adds saving and loading. A saved pipeline is a list of terms, the vector idf and a few checked parameters. It
contains no pickle and no code. There is `min_token_length` instead of a token pattern, because a regular expression
from an unknown file could run forever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer
from sklearn.utils.metaestimators import available_if
from sklearn.utils.sparsefuncs_fast import inplace_csr_row_normalize_l1, inplace_csr_row_normalize_l2
from sklearn.utils.validation import check_is_fitted

from longtail import check, content
from longtail.errors import InputError, ModelError
from longtail.matrix import MAX_COLUMNS, canonical_csr

KINDS = ("tfidf", "hashing")
ANALYZERS = ("word", "char", "char_wb")
NORMS = ("l2", "l1", "none")
MAX_NGRAM = 64
MAX_TOKEN_LENGTH = 64


def _has_vocabulary(features: TextFeatures) -> bool:
    """Return whether the columns have names. If not, there is no `get_feature_names_out`, as in HashingVectorizer."""
    return features.kind == "tfidf"


class TextFeatures(TransformerMixin, BaseEstimator):  # type: ignore[misc, unused-ignore]  # scikit-learn has no types
    """tf-idf features of texts. They are fitted on the training texts only, and stored in the dataset and the model.

    The parameters follow scikit-learn's TfidfVectorizer and HashingVectorizer. The defaults suit titles of five words
    as well as articles of five thousand. `sublinear_tf` prevents a word that occurs fifty times from dominating a long
    text, and does not change short texts. `use_idf` replaces a list of stop words in any language. The norm makes long
    and short texts comparable, so that one C suits both. Words of one character are kept, because terms such as
    "type I", "vitamin C" and "hepatitis B" need them.

    Parameters
    ----------
    kind : "tfidf" learns a vocabulary, so explanations can name words. "hashing" has no names, but a fixed size.
    analyzer : "word" uses words. "char_wb" uses characters within words, for typing errors, compounds and part numbers.
        "char" uses characters also across words.
    ngram_range : the smallest and largest number of consecutive tokens in a term; (3, 5) is usual for characters.
    min_df : terms in fewer training texts are dropped ("tfidf" only).
    max_features : keep only this many terms, the most frequent ones ("tfidf" only); None keeps all.
    min_token_length : shorter words are ignored ("word" only).
    sublinear_tf : replace the count tf of a term by 1 + ln tf.
    use_idf : give terms that occur in few training texts a larger weight.
    norm : scale every row to length 1 ("l2") or to sum 1 ("l1"), or not at all ("none").
    lowercase : treat upper and lower case as the same.
    n_features : number of columns ("hashing" only).

    Attributes
    ----------
    n_features_out_ : number of columns of X.
    """

    n_features_out_: int

    def __init__(
        self,
        kind: str = "tfidf",
        *,
        analyzer: str = "word",
        ngram_range: tuple[int, int] = (1, 1),
        min_df: int = 1,
        max_features: int | None = None,
        min_token_length: int = 1,
        sublinear_tf: bool = True,
        use_idf: bool = True,
        norm: str = "l2",
        lowercase: bool = True,
        n_features: int = 2**18,
    ) -> None:
        self.kind = kind
        self.analyzer = analyzer
        self.ngram_range = ngram_range
        self.min_df = min_df
        self.max_features = max_features
        self.min_token_length = min_token_length
        self.sublinear_tf = sublinear_tf
        self.use_idf = use_idf
        self.norm = norm
        self.lowercase = lowercase
        self.n_features = n_features

    # --- fitting and using -------------------------------------------------------------------------------------------

    def fit(self, texts: Iterable[str], y: Any = None) -> TextFeatures:
        """Learn the vocabulary and its weights from the training texts. `y` is ignored."""
        self._fit(texts)
        return self

    def fit_transform(self, texts: Iterable[str], y: Any = None, **params: Any) -> csr_array:
        """Return the same as `fit(texts).transform(texts)`, but tokenise the texts only once."""
        return self._weigh(self._fit(texts))

    def transform(self, texts: Iterable[str]) -> csr_array:
        """Return one row of features per text. Terms that the training texts do not contain are ignored."""
        check_is_fitted(self)
        texts = text_list(texts)
        if not texts:
            return csr_array((0, self.n_features_out_), dtype=np.float32)
        return self._weigh(self._counter.transform(texts))

    @available_if(_has_vocabulary)  # type: ignore[untyped-decorator, unused-ignore]
    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the term of each column, as an array of strings. Only for kind="tfidf". `input_features` is
        ignored."""
        check_is_fitted(self)
        return np.asarray(self._counter.get_feature_names_out(), dtype=object)

    def unknown_share(self, texts: Iterable[str]) -> float | None:
        """Return the share of terms in the texts that the vocabulary lacks. None if there are no terms, or none known.

        Hashed features know every term.
        """
        check_is_fitted(self)
        if self.kind == "hashing":
            return None
        analyze, known = self._counter.build_analyzer(), self._counter.vocabulary_
        found = [term in known for text in text_list(texts) for term in analyze(text)]
        return 1.0 - sum(found) / len(found) if found else None

    def same_as(self, other: Any) -> bool:
        """Return whether `other` is a fitted TextFeatures that turns every text into the same row."""
        if self is other:
            return True
        if not isinstance(other, TextFeatures) or not (self._is_fitted() and other._is_fitted()):
            return False
        (mine, parameters), (others, other_parameters) = self.to_arrays(), other.to_arrays()
        return parameters == other_parameters and all(np.array_equal(mine[name], others[name]) for name in mine)

    def _fit(self, texts: Iterable[str]) -> Any:
        """Fit, and return the counts of terms in these texts."""
        self._check_parameters()
        texts = text_list(texts)
        if not texts:
            raise InputError("there is no text to fit the features on; give at least one")
        if self.kind == "tfidf" and self.min_df > len(texts):
            raise InputError(
                f"min_df={self.min_df} keeps terms of at least that many texts, but there are {len(texts)}; lower it"
            )
        counter = self._new_counter()
        try:
            counts = counter.fit_transform(texts)
        except ValueError:  # CountVectorizer found no term
            counts = None
        if counts is None or not counts.nnz:
            raise InputError(
                f"no term is left of {len(texts)} text(s) with analyzer={self.analyzer!r}, "
                f"ngram_range={self.ngram_range}, min_df={self.min_df}, min_token_length={self.min_token_length}; "
                "lower these, or check the texts"
            )
        self._counter = counter
        self._weights = self._new_weights().fit(counts)
        self.n_features_out_ = int(counts.shape[1])
        return counts

    def _weigh(self, counts: Any) -> csr_array:
        """Return the same bits as `self._weights.transform`, without its checks. For a single text, as in a service,
        the checks take ten times as long as the rest."""
        X = canonical_csr(counts)
        if self.sublinear_tf:
            np.log(X.data, X.data)
            X.data += 1.0
        if self.use_idf:
            X.data *= self._weights.idf_[X.indices]
        if self.norm == "l2":
            inplace_csr_row_normalize_l2(X)
        elif self.norm == "l1":
            inplace_csr_row_normalize_l1(X)
        return X

    def _new_counter(self, vocabulary: dict[str, int] | None = None) -> CountVectorizer | HashingVectorizer:
        """Return scikit-learn's vectorizer with our parameters, and with the given vocabulary if there is one."""
        pattern = rf"(?u)\b\w{{{self.min_token_length},}}\b" if self.analyzer == "word" else None
        shared: dict[str, Any] = {
            "analyzer": self.analyzer,
            "ngram_range": tuple(self.ngram_range),
            "lowercase": self.lowercase,
            "token_pattern": pattern,
            "dtype": np.float32,
        }
        if self.kind == "hashing":  # with alternating signs, counts could cancel, and a negative count has no logarithm
            return HashingVectorizer(n_features=self.n_features, alternate_sign=False, norm=None, **shared)
        return CountVectorizer(min_df=self.min_df, max_features=self.max_features, vocabulary=vocabulary, **shared)

    def _new_weights(self) -> TfidfTransformer:
        norm = None if self.norm == "none" else self.norm
        return TfidfTransformer(norm=norm, use_idf=self.use_idf, sublinear_tf=self.sublinear_tf)

    def _check_parameters(self) -> None:
        """Raise InputError if a parameter is invalid."""
        check.choice(self, "kind", KINDS)
        check.choice(self, "analyzer", ANALYZERS)
        check.choice(self, "norm", NORMS)
        for name in ("sublinear_tf", "use_idf", "lowercase"):
            check.flag(self, name)
        ngrams: Any = self.ngram_range
        if (
            not isinstance(ngrams, tuple | list)
            or [type(n) for n in ngrams] != [int, int]
            or not 1 <= ngrams[0] <= ngrams[1] <= MAX_NGRAM
        ):
            raise InputError(
                f"The 'ngram_range' parameter of TextFeatures must be two whole numbers from 1 to {MAX_NGRAM}, the "
                f"shortest and the longest. Got {ngrams!r} instead."
            )
        for name in ("min_df", "max_features", "min_token_length", "n_features"):
            if name != "max_features" or self.max_features is not None:
                check.number(self, name, least=1, whole=True)
        for name, most in (("min_token_length", MAX_TOKEN_LENGTH), ("n_features", MAX_COLUMNS)):
            if getattr(self, name) > most:
                raise InputError(
                    f"The '{name}' parameter of TextFeatures must be at most {most}. Got {getattr(self, name)} instead."
                )

    def _is_fitted(self) -> bool:
        return hasattr(self, "n_features_out_")

    def __sklearn_is_fitted__(self) -> bool:
        return self._is_fitted()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags

    # --- to disk and back --------------------------------------------------------------------------------------------

    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The fitted pipeline as arrays, whose names begin with `text_`, and parameters for JSON."""
        check_is_fitted(self)
        arrays: dict[str, np.ndarray] = {}
        if self.kind == "tfidf":
            packed = content.pack_strings(self.get_feature_names_out())
            arrays = {f"text_vocabulary_{part}": array for part, array in packed.items()}
        if self.use_idf:
            arrays["text_idf"] = self._weights.idf_
        parameters = self.get_params(deep=False)
        return arrays, {name: _plain(value) for name, value in parameters.items()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], meta: Any, where: Path) -> TextFeatures:
        """Rebuild the pipeline from the values of `to_arrays`. Raise ModelError about `where` if they are damaged."""
        if not isinstance(meta, Mapping) or set(meta) != set(cls._get_param_names()):
            raise ModelError(
                where, f"text features must have exactly the parameters {', '.join(cls._get_param_names())}"
            )
        features = cls(**meta)
        try:
            features._check_parameters()
        except InputError as error:
            raise ModelError(where, f"text features cannot be used: {error}") from None
        shortest, longest = features.ngram_range
        features.ngram_range = (shortest, longest)  # JSON has no tuples
        vocabulary = _vocabulary(arrays, where) if features.kind == "tfidf" else None
        features.n_features_out_ = features.n_features if vocabulary is None else len(vocabulary)
        features._counter = features._new_counter(vocabulary)
        features._weights = features._new_weights()
        features._weights.n_features_in_ = features.n_features_out_
        if features.use_idf:
            features._weights.idf_ = _idf(arrays, features.n_features_out_, where)
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
    """A parameter as a plain JSON value; NumPy's numbers become Python's."""
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return value.item() if isinstance(value, np.generic) else value


def text_list(texts: Any) -> list[str]:
    """Return `texts` as a list. They have any form that `check.texts` accepts, or are an iterable. Raise InputError if
    they are not texts."""
    if isinstance(texts, Mapping) or not (isinstance(texts, Iterable) or check.texts(texts) is not None):
        raise InputError(f"texts must be a list of str, but {type(texts).__name__} was passed; pass a list of texts")
    if not hasattr(texts, "__len__"):
        texts = list(texts)
    found = check.texts(texts)
    if found is None:
        if not len(texts):
            return []
        first = next(iter(texts))
        raise InputError(f"text 0 is {type(first).__name__}, not str; convert it, or put '' where a text is missing")
    return found


def fitted_features(texts: list[str], text_features: TextFeatures | None) -> tuple[TextFeatures, csr_array]:
    """Return the fitted pipeline for these texts, and their features. A pipeline that is fitted is used as it is."""
    if text_features is not None and text_features._is_fitted():
        return text_features, text_features.transform(texts)
    fitted = clone(text_features or TextFeatures())
    return fitted, fitted.fit_transform(texts)
