"""Compiled parser of one piece of text, `label,label feature:value feature:value …` per line.

The caller promises complete lines (the last byte is a newline) and arrays long enough for the separators that `count`
found. The kernel then returns a status and a byte position for every byte sequence, and never reads out of bounds.

    digits  = one or more of 0-9             label = digits             value = [+-] digits [. [digits]] [e [+-] digits]
    pair    = digits ":" value               blank = space or tab               | [+-] . digits [e [+-] digits]
    row     = [label {"," label}] {blank {blank} pair} {blank} [CR] LF         (or: pairs only, from the first byte on)

Numbers. Let m be the digits read as one integer and e the power of ten. If m < 2^53 and |e| <= 22, then m and 10^|e|
are exact doubles and one multiplication or division rounds correctly [Clinger 1990, "How to read floating point numbers
accurately"]. Otherwise m is cut after 19 digits, and d = m 10^e is off by less than 2^-50 relative; if both ends of
that interval round to the same float32, so does the exact number. The remaining numbers, next to the middle of two
floats, are left to the caller, which has a slower exact way. Such a pair gets the index -1 - j, and the byte position
of its number in place of the value.
"""

from __future__ import annotations

import numpy as np

from longtail.compiled import kernel

# The status of a piece of text. Every status except OK has the byte position of the invalid number or pair.
OK = 0
BAD_LABEL = 1
BAD_FEATURE = 2
BAD_VALUE = 3
VALUE_TOO_LARGE = 4
VALUE_NOT_POSITIVE = 5

POWERS = np.array([float(f"1e{k}") for k in range(23)])  # exact doubles
TAB = 9
LF = 10
CR = 13
SPACE = 32
COMMA = 44
COLON = 58
PLUS = 43
MINUS = 45
DOT = 46
ZERO = 48
UPPER_E = 69
LOWER_E = 101
ONE = np.uint64(1)  # with unsigned positions, Numba does not handle negative indices
EXACT_BELOW = np.uint64(1 << 53)
SLACK = 2.0**-50
HUGE = np.uint64(10**12)  # larger exponents cannot be balanced by the digits of one line
LONGEST = 19  # decimal digits that always fit 64 bits
LARGEST, SMALLEST = 38, -65  # powers of ten: above, 1 overflows float32; below, 2^64 rounds to zero


@kernel
def count(text):
    """Colons, commas and newlines in `text`: bounds for the pairs, labels and rows in it."""
    colons = np.int64(0)
    commas = np.int64(0)
    newlines = np.int64(0)
    i, n = np.uint64(0), np.uint64(text.size)
    while i < n:  # blocks short enough for counters of one byte, which LLVM turns into vector instructions
        stop = min(n, i + np.uint64(192))
        a = np.uint8(0)
        b = np.uint8(0)
        c = np.uint8(0)
        for j in range(i, stop):
            a = np.uint8(a + np.uint8(text[j] == COLON))
            b = np.uint8(b + np.uint8(text[j] == COMMA))
            c = np.uint8(c + np.uint8(text[j] == LF))
        colons = colons + a
        commas = commas + b
        newlines = newlines + c
        i = stop
    return colons, commas, newlines


@kernel
def digits(text, i, number):
    """Append the decimal digits from position i on to `number`, which wraps around after LONGEST digits."""
    digit = np.uint64(text[i]) - np.uint64(ZERO)
    while digit < np.uint64(10):
        number = number * np.uint64(10) + digit
        i += ONE
        digit = np.uint64(text[i]) - np.uint64(ZERO)
    return i, number


@kernel
def leading_zeros(text, i):
    """The number of zeros before the first other digit; a dot is skipped."""
    zeros = 0
    while text[i] == ZERO or text[i] == DOT:
        zeros += text[i] == ZERO
        i += ONE
    return zeros


@kernel
def whole_number(text, i, limit):
    """Return the digits from position i on as a number of at most `limit`. `limit` if there are none or too many."""
    start = i
    i, number = digits(text, i, np.uint64(0))
    length = np.int64(i - start)
    if length > LONGEST and length - leading_zeros(text, start) > LONGEST:
        return i, limit
    if length == 0 or number > limit:
        return i, limit
    return i, number


@kernel
def ends(text, i):
    """Whether the number before position i ends there: a blank or the end of the line follows."""
    byte = text[i]
    return byte in (SPACE, LF, TAB) or (byte == CR and text[i + ONE] == LF)


@kernel
def exponent(text, i):
    """The signed number after an E, at most HUGE, and its end, which is its start if there are no digits."""
    start = i
    negative = text[i] == MINUS
    if negative or text[i] == PLUS:
        i += ONE
    first = i
    i, power = digits(text, i, np.uint64(0))
    if i == first:
        return start, 0
    length = np.int64(i - first)
    if power > HUGE or (length > LONGEST and length - leading_zeros(text, first) > LONGEST):
        power = HUGE
    return i, -np.int64(power) if negative else np.int64(power)


@kernel
def leading_digits(text, i):
    """The first LONGEST digits from position i on, without leading zeros, and the number of digits after them."""
    mantissa = np.uint64(0)
    length = np.int64(0)
    more = np.int64(0)
    while text[i] == DOT or (text[i] >= ZERO and text[i] < ZERO + 10):
        if text[i] != DOT:
            if length < LONGEST:
                mantissa = mantissa * np.uint64(10) + (np.uint64(text[i]) - np.uint64(ZERO))
                length += np.int64(mantissa > np.uint64(0))
            else:
                more += 1
        i += ONE
    return mantissa, more


@kernel
def scaled(mantissa, power, whole):
    """mantissa 10^power, and whether it surely rounds to the right float32. If not `whole`, digits were cut off."""
    value = np.float64(mantissa)
    rest = abs(power)
    exact = whole and mantissa < EXACT_BELOW and rest <= 22
    if not exact:
        if mantissa == np.uint64(0):
            return 0.0, True
        if power > LARGEST:
            return np.inf, True
        if power < SMALLEST:
            return 0.0, True
        while rest > 22:
            value = value / POWERS[22] if power < 0 else value * POWERS[22]
            rest -= 22
    if power < 0:
        value /= POWERS[rest]
    elif power > 0:
        value *= POWERS[rest]
    return value, exact or np.float32(value * (1.0 - SLACK)) == np.float32(value * (1.0 + SLACK))


@kernel
def decimal(text, i):
    """The value at position i: its end (i itself if there is no number), the number, and whether it is sure."""
    start = i
    negative = text[i] == MINUS
    if negative or text[i] == PLUS:
        i += ONE
    first = i
    i, mantissa = digits(text, i, np.uint64(0))
    length = np.int64(i - first)
    power = np.int64(0)
    if text[i] == DOT:
        i += ONE
        point = i
        i, mantissa = digits(text, i, mantissa)
        power = -np.int64(i - point)
        length -= power
    if length == 0:
        return start, 0.0, True
    if text[i] == LOWER_E or text[i] == UPPER_E:
        end, shift = exponent(text, i + ONE)
        if end == i + ONE:
            return start, 0.0, True
        i = end
        power += shift
    whole = True
    if length > LONGEST:
        mantissa, more = leading_digits(text, first)
        power += more
        whole = more == 0
    value, sure = scaled(mantissa, power, whole)
    return i, -value if negative else value, sure


@kernel
def labels_of_row(text, i, no_label, Y_indices, q):
    """Write the labels at position i to Y_indices[q:]. Returns status, position, new q, whether they are unsorted."""
    if ends(text, i):
        return OK, i, q, False
    first = q
    unsorted = False
    previous = np.uint64(0)
    while True:
        at = i
        i, label = whole_number(text, i, no_label)
        if q == first and i > at and text[i] == COLON:  # a pair: the row has no labels
            return OK, at, q, False
        if label == no_label or not (text[i] == COMMA or ends(text, i)):
            return BAD_LABEL, at, q, unsorted
        unsorted |= q > first and label <= previous
        previous = label
        Y_indices[q] = label
        q += ONE
        if text[i] != COMMA:
            return OK, i, q, unsorted
        i += ONE


@kernel
def pairs_of_row(text, i, shift, no_feature, positive, X_indices, X_data, X_bits, p):
    """Do the same for the pairs up to the end of the line. The last return value says whether all numbers are sure."""
    first = p
    unsorted = False
    all_sure = True
    previous = np.uint64(0)
    while True:
        while text[i] == SPACE or text[i] == TAB:
            i += ONE
        if ends(text, i):
            return OK, i + ONE if text[i] == LF else i + ONE + ONE, p, unsorted, all_sure
        at = i
        i, feature = whole_number(text, i, no_feature)
        if feature == no_feature or feature < shift or text[i] != COLON:
            return BAD_FEATURE, at, p, unsorted, all_sure
        unsorted |= p > first and feature <= previous
        previous = feature
        at = i + ONE
        i, value, sure = decimal(text, at)
        if i == at or not ends(text, i):
            return BAD_VALUE, at, p, unsorted, all_sure
        X_indices[p] = feature - shift
        if sure:
            single = np.float32(value)
            if np.isinf(single):
                return VALUE_TOO_LARGE, at, p, unsorted, all_sure
            if positive and not single > 0:
                return VALUE_NOT_POSITIVE, at, p, unsorted, all_sure
            X_data[p] = single
        else:
            X_indices[p] = -1 - np.int64(feature - shift)
            X_bits[p] = at
            all_sure = False
        p += ONE


@kernel
def parse(text, rules, X_lengths, X_indices, X_data, X_bits, Y_lengths, Y_indices):
    """Read the rows of `text` into the arrays until its end or the first fault.

    `rules` are: whether rows have labels, whether values must be positive, the first and the last feature number, the
    last label number. `X_bits` is the memory of `X_data` as integers.

    Returns status, position, number of complete rows, number of rows up to the last one that is not blank, number of
    pairs written (including those of a row with a fault), whether all values are sure, and whether any row has unsorted
    features, and unsorted labels.
    """
    with_labels, positive, first_feature, last_feature, last_label = rules
    shift = np.uint64(first_feature)
    no_feature = np.uint64(last_feature + 1)
    no_label = np.uint64(last_label + 1)
    i, n = np.uint64(0), np.uint64(text.size)
    row = np.uint64(0)
    filled = np.uint64(0)
    p = np.uint64(0)
    q = np.uint64(0)
    X_unsorted = False
    Y_unsorted = False
    all_sure = True
    status = OK
    while i < n and status == OK:
        start_p, start_q = p, q
        if with_labels:
            status, i, q, unsorted = labels_of_row(text, i, no_label, Y_indices, q)
            Y_unsorted |= unsorted
        if status == OK:
            status, i, p, unsorted, sure = pairs_of_row(
                text, i, shift, no_feature, positive, X_indices, X_data, X_bits, p
            )
            X_unsorted |= unsorted
            all_sure &= sure
        if status == OK:
            X_lengths[row] = p - start_p
            Y_lengths[row] = q - start_q
            row += ONE
            if p > start_p or q > start_q:
                filled = row
    return status, i, row, filled, p, all_sure, X_unsorted, Y_unsorted


@kernel
def line_start(text, i):
    """Return the start of the line of position i."""
    while i > 0 and text[i - 1] != LF:
        i -= 1
    return i


# --- rows into order -------------------------------------------------------------------------------------------------


@kernel
def comes_after(indices, data, with_values, a, b):
    """Return whether entry a comes after entry b: by index, then by value."""
    return indices[a] > indices[b] or (with_values and indices[a] == indices[b] and data[a] > data[b])


@kernel
def sift(indices, data, with_values, start, root, end):
    """Move entry `root` of the heap [start, end) down to its place."""
    while True:
        child = start + 2 * (root - start) + 1
        if child >= end:
            return
        if child + 1 < end and comes_after(indices, data, with_values, child + 1, child):
            child += 1
        if not comes_after(indices, data, with_values, child, root):
            return
        swap(indices, data, with_values, root, child)
        root = child


@kernel
def swap(indices, data, with_values, a, b):
    indices[a], indices[b] = indices[b], indices[a]
    if with_values:
        data[a], data[b] = data[b], data[a]


@kernel
def heap_sort(indices, data, with_values, start, end):
    """Sort entries start to end in place, in n log n steps for every input."""
    for root in range(start + (end - start) // 2 - 1, start - 1, -1):
        sift(indices, data, with_values, start, root, end)
    for last in range(end - 1, start, -1):
        swap(indices, data, with_values, start, last)
        sift(indices, data, with_values, start, start, last)


@kernel
def merge(lengths, indices, data, with_values):
    """Sort each row and add up entries of equal index, smallest first, in double precision; all in place.

    Returns the number of entries left, the number of rows that had equal entries, and the first row with an infinite
    sum, or -1.
    """
    start = 0
    out = 0
    repeats = 0
    overflow = -1
    for row in range(lengths.size):
        end, row_out = start + lengths[row], out
        for p in range(start + 1, end):
            if indices[p] <= indices[p - 1]:
                heap_sort(indices, data, with_values, start, end)
                break
        p = start
        while p < end:
            index, first = indices[p], p
            while p < end and indices[p] == index:
                p += 1
            if with_values:
                single = data[first]
                if p > first + 1:
                    total = 0.0
                    for k in range(first, p):
                        total += np.float64(data[k])
                    single = np.float32(total)
                    if np.isinf(single) and overflow < 0:
                        overflow = row
                data[out] = single
            indices[out] = index
            out += 1
        lengths[row] = out - row_out
        repeats += out - row_out < end - start
        start = end
    return out, repeats, overflow
