"""From texts to features: columns of words, and columns of an embedding if one is given. Saved as plain arrays.

The features are those of scikit-learn's TfidfVectorizer and HashingVectorizer (longtail.data.terms computes them). A
saved pipeline is a list of terms, the vector idf and a few checked parameters. It contains no pickle and no code. There
is `min_token_length` instead of a token pattern, because a regular expression from an unknown file could run forever.

`TextPipeline` does all of this without scikit-learn, whose import takes longer than a prediction. `TextFeatures`
(longtail.data.text_features) is the same as a transformer of scikit-learn.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array

from longtail import check, content
from longtail.data import embeddings
from longtail.data.embeddings import CallableEncoder, DensePart, Encoder, GivenVectors, MissingEncoder, encoder
from longtail.data.terms import Counts, Division, Learner, Terms, blocks, renumbered
from longtail.errors import InputError, ModelError
from longtail.hybrid import HybridRows, Rows
from longtail.matrix import MAX_COLUMNS

KINDS = ("tfidf", "hashing")
ANALYZERS = ("word", "char", "char_wb")
NORMS = ("l2", "l1", "none")
MAX_NGRAM = 64
MAX_TOKEN_LENGTH = 64
EMBEDDING = {"embeddings", "embedding_scale"}  # a folder has these parameters only if there is an encoder


class TextPipeline:
    """Turns texts into features. TextFeatures documents the parameters."""

    n_features_out_: int
    _dense: DensePart | None

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
        embeddings: str | Callable[[list[str]], Any] | Encoder | None = None,
        embedding_scale: float = 0.5,
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
        self.embeddings = embeddings
        self.embedding_scale = embedding_scale

    # --- fitting and using -------------------------------------------------------------------------------------------

    def fit(self, texts: Iterable[str], y: Any = None) -> Self:
        """Learn the vocabulary and its weights from the training texts. `y` is ignored."""
        self._fit(texts)
        return self

    def fit_transform(
        self, texts: Iterable[str], y: Any = None, *, dense: np.ndarray | None = None, **params: Any
    ) -> Rows:
        """Return the same as `fit(texts).transform(texts)`, but tokenise the texts only once.

        dense : embeddings of the texts that were computed elsewhere. They are used in place of `embeddings`, and must
            then be given for every text.
        """
        found, vectors, column_of = self._fit(texts, keep=True, given=dense)
        if column_of is not None:
            found.parts = [renumbered(part, column_of) for part in found.parts]
        words = self._terms.weigh(found.rows(self._terms.n_columns))
        return words if self._dense is None else HybridRows(words, self._dense.columns(np.concatenate(vectors)))

    def transform(self, texts: Iterable[str], dense: np.ndarray | None = None) -> Rows:
        """Return one row of features per text. Terms that the training texts do not contain are ignored.

        dense : embeddings of the texts, if those of the training texts were given to `fit_transform`.
        """
        self._check_fitted()
        texts = text_list(texts)
        if dense is not None and not self.takes_vectors:
            raise InputError("embeddings were given, but these text features were fitted without given ones")
        words = self.words(texts)
        if self._dense is None:
            return words
        encoder = self._dense.encoder
        if dense is not None and isinstance(encoder, GivenVectors):
            return HybridRows(words, self._dense.columns(encoder.check(dense, len(texts))))
        return HybridRows(words, self._dense.transform(texts))

    def words(self, texts: Iterable[str]) -> csr_array:
        """Return the columns of words alone."""
        self._check_fitted()
        return self._terms.transform(text_list(texts))

    @property
    def takes_vectors(self) -> bool:
        """Whether `transform` needs embeddings that were computed elsewhere."""
        return self._dense is not None and isinstance(self._dense.encoder, GivenVectors)

    def with_words_of(self, texts: Iterable[str]) -> Self:
        """Return a pipeline whose vocabulary is learned from these texts. Given embeddings keep their centre."""
        parameters = {name: getattr(self, name) for name in self._parameter_names()}
        if not self.takes_vectors:
            return type(self)(**parameters).fit(texts)
        fitted = type(self)(**{**parameters, "embeddings": None}).fit(texts)
        fitted._dense = self._dense
        fitted.n_features_out_ += self.n_features_out_ - self._terms.n_columns
        return fitted

    def with_embedding_scale(self, scale: float) -> Self:
        """Return the same pipeline with embeddings of another length."""
        self._check_fitted()
        if self._dense is None:
            raise InputError("these text features have no embeddings, so there is no scale to change")
        changed = copy.copy(self)
        changed.embedding_scale = scale
        changed._check_parameters()
        changed._dense = DensePart(self._dense.encoder, scale, self._dense.centre)
        return changed

    def column_names(self) -> list[str] | None:
        """Return the name of each column: its term, or the encoder and a number. None if terms are hashed."""
        self._check_fitted()
        if self._terms.names is None:
            return None
        if self._dense is None:
            return self._terms.names
        encoder = self._dense.encoder
        return [*self._terms.names, *(f"{encoder.name} {number}" for number in range(encoder.n_dims))]

    def encoder_of_column(self, column: int) -> str | None:
        """Return the name of the encoder that makes this column, or None for a column of words."""
        return self._dense.encoder.name if self._dense is not None and column >= self._terms.n_columns else None

    def attach(self, function: Callable[[list[str]], Any]) -> Self:
        """Bring back the function that made the embeddings of a saved model, which its folder cannot hold."""
        self._check_fitted()
        if self._dense is None or not isinstance(self._dense.encoder, MissingEncoder):
            raise InputError("these text features do not lack a function, so there is nothing to attach")
        found = CallableEncoder(function)
        found.check_probe(self._dense.encoder.probe)
        self._dense = DensePart(found, self.embedding_scale, self._dense.centre)
        self.embeddings = function
        return self

    def unknown_share(self, texts: Iterable[str]) -> float | None:
        """Return the share of terms in the texts that the vocabulary lacks. None if there are no terms, or none known.

        Hashed features know every term.
        """
        self._check_fitted()
        known = self._terms.vocabulary
        if known is None:
            return None
        found = [term in known for text in text_list(texts) for term in self._terms.division.terms(text)]
        return 1.0 - sum(found) / len(found) if found else None

    def same_as(self, other: Any) -> bool:
        """Return whether `other` is a fitted TextFeatures that turns every text into the same row."""
        if self is other:
            return True
        if not isinstance(other, TextPipeline) or not (self._is_fitted() and other._is_fitted()):
            return False
        (mine, parameters), (others, other_parameters) = self.to_arrays(), other.to_arrays()
        return parameters == other_parameters and all(np.array_equal(mine[name], others[name]) for name in mine)

    def _fit(
        self, texts: Iterable[str], *, keep: bool = False, given: np.ndarray | None = None
    ) -> tuple[Counts, list[np.ndarray], np.ndarray | None]:
        """Fit. With `keep`, return the counts of terms in these texts, their vectors if there is an encoder, and the
        columns that the numbers of terms stand for. The vectors may be `given`."""
        self._check_parameters()
        texts = text_list(texts)
        if not texts:
            raise InputError("there is no text to fit the features on; give at least one")
        learner, found = self._learner(), Counts()
        dense, vectors = self._dense_part(given, len(texts)), []
        if dense is not None and given is not None:
            vectors = [dense.learn(np.asarray(given, np.float32))]
        for block in blocks(texts):
            part = learner.add(block)
            own = None if dense is None or given is not None else dense.learn(dense.encoder.encode(block))
            if keep:
                found.parts.append(part)
                vectors += [] if own is None else [own]
        return found, vectors, self._finish(learner, dense)

    def _learner(self) -> Learner:
        """Return the object that learns the terms, a few texts at a time. `_finish` ends the fit."""
        return Learner(self._division(), n_hashed=self.n_features if self.kind == "hashing" else None)

    def _dense_part(self, given: np.ndarray | None = None, n_texts: int = 0) -> DensePart | None:
        """Return the object that makes the dense columns, before it is fitted. None if there are none."""
        if given is not None:
            if self.embeddings is not None:
                raise InputError("embeddings were given, and TextFeatures has an encoder of its own; use one of them")
            source = GivenVectors(given.shape[1] if given.ndim == 2 else 0)
            source.check(given, n_texts)
            return DensePart(source, float(self.embedding_scale))
        return None if self.embeddings is None else DensePart(encoder(self.embeddings), float(self.embedding_scale))

    def _finish(self, learner: Learner, dense: DensePart | None) -> np.ndarray | None:
        """Become fitted. Return the columns that the learner's numbers of terms stand for."""
        if self.kind == "tfidf" and self.min_df > learner.n_texts:
            raise InputError(
                f"min_df={self.min_df} keeps terms of at least that many texts, but there are {learner.n_texts}; "
                "lower it"
            )
        terms, column_of = learner.finish(
            min_df=self.min_df,
            max_features=self.max_features,
            use_idf=self.use_idf,
            sublinear_tf=self.sublinear_tf,
            norm=self.norm,
        )
        if not learner.n_terms or not terms.n_columns:
            raise InputError(
                f"no term is left of {learner.n_texts} text(s) with analyzer={self.analyzer!r}, "
                f"ngram_range={self.ngram_range}, min_df={self.min_df}, min_token_length={self.min_token_length}; "
                "lower these, or check the texts"
            )
        self._terms = terms
        self._dense = dense
        self.n_features_out_ = terms.n_columns + (0 if dense is None else dense.encoder.n_dims)
        return column_of

    def _division(self) -> Division:
        shortest, longest = self.ngram_range
        return Division(self.analyzer, (shortest, longest), self.min_token_length, self.lowercase)

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
        check.number(self, "embedding_scale", above=0)
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

    def _check_fitted(self) -> None:
        if not self._is_fitted():
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(f"This {type(self).__name__} instance is not fitted yet; call fit with texts first")

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return sorted(set(inspect.signature(cls.__init__).parameters) - {"self"})

    # --- to disk and back --------------------------------------------------------------------------------------------

    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The fitted pipeline as arrays, whose names begin with `text_`, and parameters for JSON."""
        self._check_fitted()
        arrays: dict[str, np.ndarray] = {}
        if self.kind == "tfidf":
            packed = content.pack_strings(self._terms.names or ())
            arrays = {f"text_vocabulary_{part}": array for part, array in packed.items()}
        if self._terms.idf is not None:
            arrays["text_idf"] = self._terms.idf
        parameters = {name: _plain(getattr(self, name)) for name in self._parameter_names() if name not in EMBEDDING}
        if self._dense is not None:
            own, encoder_meta = self._dense.to_arrays()
            arrays |= own
            parameters |= {"embeddings": encoder_meta, "embedding_scale": float(self.embedding_scale)}
        return arrays, parameters

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], meta: Any, where: Path) -> Self:
        """Rebuild the pipeline from the values of `to_arrays`. Raise ModelError about `where` if they are damaged."""
        names = cls._parameter_names()
        if not isinstance(meta, Mapping) or set(meta) not in (set(names), set(names) - EMBEDDING):
            raise ModelError(where, f"text features must have exactly the parameters {', '.join(names)}")
        stored = meta.get("embeddings")
        found = None if stored is None else embeddings.from_arrays(arrays, stored, where)
        features = cls(**{**meta, "embeddings": found})
        try:
            features._check_parameters()
        except InputError as error:
            raise ModelError(where, f"text features cannot be used: {error}") from None
        shortest, longest = features.ngram_range
        features.ngram_range = (shortest, longest)  # JSON has no tuples
        vocabulary = _vocabulary(arrays, where) if features.kind == "tfidf" else None
        n_words = features.n_features if vocabulary is None else len(vocabulary)
        idf = _idf(arrays, n_words, where) if features.use_idf else None
        division = features._division()
        features._terms = Terms(division, n_words, vocabulary, idf, features.sublinear_tf, features.norm)
        features._dense = None
        if found is not None:
            features._dense = DensePart.from_arrays(found, arrays, features.embedding_scale, where)
        features.n_features_out_ = n_words + (0 if found is None else found.n_dims)
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
