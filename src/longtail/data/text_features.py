"""`TextFeatures`: the text pipeline as a transformer of scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.metaestimators import available_if

from longtail.data.text_pipeline import TextPipeline
from longtail.hybrid import Rows


def _has_vocabulary(features: TextFeatures) -> bool:
    """Return whether the columns have names. If not, there is no `get_feature_names_out`, as in HashingVectorizer."""
    return features.kind == "tfidf"


class TextFeatures(TextPipeline, TransformerMixin, BaseEstimator):  # type: ignore[misc, unused-ignore]  # scikit-learn has no types
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
    embeddings : columns of meaning beside the columns of words. A folder in the layout of Model2Vec (`tokenizer.json`
        and `model.safetensors`), "wordllama" for the table of that package (in the extra `embed`), or the name or
        folder of a sentence-transformers model. In Python also a function that
        takes a list of texts and returns an array with one row per text. A table of token vectors is stored inside the
        model. A larger model is recognised by its vectors, and must be present at prediction.
    embedding_scale : length of the embedding of a text; its columns of words have length 1.

    Attributes
    ----------
    n_features_out_ : number of columns of X.
    """

    @available_if(_has_vocabulary)  # type: ignore[untyped-decorator, unused-ignore]
    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the term of each column, as an array of strings. Only for kind="tfidf". `input_features` is
        ignored."""
        return np.array(self.column_names(), dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return self._is_fitted()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags


def fitted_features(texts: list[str], text_features: TextFeatures | None) -> tuple[TextFeatures, Rows]:
    """Return the fitted pipeline for these texts, and their features. A pipeline that is fitted is used as it is."""
    if text_features is not None and text_features._is_fitted():
        return text_features, text_features.transform(texts)
    fitted = clone(text_features or TextFeatures())
    return fitted, fitted.fit_transform(texts)
