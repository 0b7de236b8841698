"""The decorators of all kernels, and the form of the arrays that kernels take.

A kernel is a module-level function over plain arrays. It trusts its input, allocates nothing large, and does not print,
raise or log. `error_model="numpy"` (divisions are not checked) and unsigned indices (negative ones do not wrap around)
let LLVM vectorise. Read-only views give each kernel one signature, whether or not an array is memory-mapped. Numba's
disk cache does not notice edits in other files, so a kernel calls only kernels of its own file.

Numba is imported at the first call of a kernel, because its import takes as long as a prediction for a few rows, which
needs no kernel (models/plain.py).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import threading
import time
import warnings
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from longtail import file_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scipy.sparse import csr_array


_making = threading.RLock()  # without it, two threads may each make a form of a kernel and compile it
PATIENCE = 120.0  # seconds to wait for another process that compiles the same kernel


class Kernel:
    """A function that Numba compiles at its first call, with the GIL released and the machine code cached on disk.

    A kernel has two compiled forms. `outer` is called from Python. `inner` is called from other kernels: it has no code
    that converts Python objects, and it is not cached, because the machine code of its callers contains it. This takes
    about half the time of compiling every kernel for Python.
    """

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.options = {"nogil": True, "error_model": "numpy", **options}

    def __call__(self, *args: Any) -> Any:
        return self.outer(*args)

    def __getattr__(self, name: str) -> Any:
        """Attributes of Numba's dispatcher, such as `signatures`."""
        if name.startswith("__") or name in ("outer", "inner"):
            raise AttributeError(name)
        return getattr(self.outer, name)

    @property
    def is_ready(self) -> bool:
        """Whether the kernel was called in this process, and so is compiled."""
        return "outer" in vars(self) and bool(getattr(self.outer, "signatures", True))

    def __reduce__(self) -> str:
        return self.function.__qualname__  # pickled by name, as functions are

    @cached_property
    def outer(self) -> Any:
        with _making:
            return vars(self).get("outer") or self._make_outer()

    def _make_outer(self) -> Any:
        numba = _numba()
        try:
            compiled = numba.njit(cache=True, no_cfunc_wrapper=True, **self.options)(self.function)
        except RuntimeError:  # the cache folder is not writable: a read-only installation without NUMBA_CACHE_DIR
            _warn_of_no_cache()
            compiled = numba.njit(no_cfunc_wrapper=True, **self.options)(self.function)
        if hasattr(compiled, "compile"):  # absent with NUMBA_DISABLE_JIT
            _forget_other_versions(compiled)
            compiled.compile = _compile_once(compiled, f"{self.function.__module__}.{self.function.__name__}")
        return compiled

    @cached_property
    def inner(self) -> Any:
        with _making:
            return vars(self).get("inner") or self._make_inner()

    def _make_inner(self) -> Any:
        made = _numba().njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **self.options)(self.function)
        if hasattr(made, "get_call_template"):  # absent with NUMBA_DISABLE_JIT
            made.get_call_template = _without_literals(made.get_call_template)
        return made


def kernel(function: Callable[..., Any]) -> Kernel:
    """Mark a function as a kernel."""
    return Kernel(function)


def reordering_kernel(function: Callable[..., Any]) -> Kernel:
    """Mark a kernel in which LLVM may reorder sums, so that it can vectorise them. NaN and infinity keep their
    meaning."""
    return Kernel(function, fastmath={"reassoc", "contract", "nsz"})


def borrowing_kernel(function: Callable[..., Any]) -> Kernel:
    """Mark a kernel that only reads and writes the elements of arrays that it is given.

    Numba then counts no references to arrays, and compiles it faster. The kernel cannot make arrays, return one, or
    copy one by a slice.
    """
    return Kernel(function, _nrt=False)


class Intrinsic:
    """A function that writes code in LLVM's language, for kernels of its file; Numba's `intrinsic`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    @cached_property
    def made(self) -> Any:
        import numba.extending

        return numba.extending.intrinsic(self.function)


def intrinsic(function: Callable[..., Any]) -> Any:
    """Mark a function as an intrinsic."""
    return Intrinsic(function)


@intrinsic
def larger(typing_context: Any, a: Any, b: Any) -> Any:
    """max(a, b) of two numbers. Numba compiles its own `max` again at every use, which takes a tenth of a second.

    Slices such as `a[:] = b` take longer still, so kernels have loops instead.
    """
    return _chosen(typing_context.unify_types(a, b), ">")


@intrinsic
def smaller(typing_context: Any, a: Any, b: Any) -> Any:
    """min(a, b) of two numbers, see `larger`."""
    return _chosen(typing_context.unify_types(a, b), "<")


def _chosen(kind: Any, comparison: str) -> Any:
    """What an intrinsic returns that takes two numbers of this kind, a and b, and gives b if `b comparison a`, else
    a."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        a, b = args
        if isinstance(kind, types.Float):
            better = builder.fcmp_ordered(comparison, b, a)
        else:
            better = (builder.icmp_signed if kind.signed else builder.icmp_unsigned)(comparison, b, a)
        return builder.select(better, b, a)

    return kind(kind, kind), generate


@intrinsic
def as_element(typing_context: Any, array: Any, value: Any) -> Any:
    """A float32 as an element of the array: itself, or the bits of a bfloat16 number (uint16).

    bfloat16 is the upper half of a float32. It is rounded to the nearest, ties to even; NaN stays NaN.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if array.dtype != types.uint16:
            return args[1]
        number, shift = ir.IntType(32), ir.IntType(32)(16)
        bits = builder.bitcast(args[1], number)
        odd = builder.and_(builder.lshr(bits, shift), number(1))
        rounded = builder.lshr(builder.add(bits, builder.add(odd, number(0x7FFF))), shift)
        is_nan = builder.fcmp_unordered("uno", args[1], args[1])
        return builder.trunc(builder.select(is_nan, number(0x7FC0), rounded), ir.IntType(16))

    return array.dtype(array, types.float32), generate


@intrinsic
def as_float(typing_context: Any, element: Any) -> Any:
    """An element that `as_element` made, as float32."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if element != types.uint16:
            return args[0]
        number = ir.IntType(32)
        return builder.bitcast(builder.shl(builder.zext(args[0], number), number(16)), ir.FloatType())

    return types.float32(element), generate


class _Later:
    """A module that is imported when it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


watchers: list[Callable[[], None]] = []  # called while Numba compiles, but not if it finds machine code in the cache

ir, types = _Later("llvmlite.ir"), _Later("numba.core.types")


@functools.cache
def _numba() -> Any:
    """Numba, which is told what kernels and intrinsics mean inside a kernel."""
    import numba
    from numba.core import event
    from numba.core.registry import cpu_target
    from numba.extending import typeof_impl

    @typeof_impl.register(Kernel)
    def type_of_kernel(kernel: Kernel, context: Any) -> Any:
        return types.Dispatcher(kernel.inner)

    @typeof_impl.register(Intrinsic)
    def type_of_intrinsic(intrinsic: Intrinsic, context: Any) -> Any:
        made = intrinsic.made
        cpu_target.typing_context.refresh()
        return cpu_target.typing_context.resolve_value_type(made)

    class Listener(event.Listener):  # type: ignore[misc, unused-ignore]
        def on_start(self, event: Any) -> None:
            for watcher in tuple(watchers):
                watcher()

        def on_end(self, event: Any) -> None:
            pass

    event.register("numba:run_pass", Listener())  # type: ignore[no-untyped-call, unused-ignore]
    return numba


def _without_literals(template_for: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `Dispatcher.get_call_template`: a constant such as 0 counts as an integer like any other.

    Numba would compile the kernel once more for every constant in a call. LLVM puts the constants in anyway.
    """

    @functools.wraps(template_for)
    def template(args: Any, kws: Any) -> Any:
        plain = {name: types.unliteral(each) for name, each in kws.items()}
        return template_for(tuple(types.unliteral(each) for each in args), plain)

    return template


def _forget_other_versions(dispatcher: Any) -> None:
    """Let Numba compile a kernel again if the cache has one of another version, whose types no longer exist.

    Numba reads the types before it sees that the source has changed, and would fail.
    """
    file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if file is None:
        return
    load_index = file._load_index

    @functools.wraps(load_index)
    def load() -> Any:
        try:
            return load_index()
        except (AttributeError, ImportError):
            return {}

    file._load_index = load


def _compile_once(dispatcher: Any, name: str) -> Callable[[Any], Any]:
    """Wrap `Dispatcher.compile`: only one process compiles a kernel, and a kernel that could not be saved is used.

    LLVM hands the machine code to Numba in a callback. If an exception occurs inside it, such as Ctrl-C or another
    signal, ctypes drops the exception and Numba has no machine code to save. It then raises "no compiled object yet",
    after it has added the kernel. A second call finds the kernel, and a later process saves it.
    """
    compile_for = dispatcher.compile

    @functools.wraps(compile_for)
    def compile_again(signature: Any) -> Any:
        with preparing, _alone(dispatcher.stats.cache_path, name):
            try:
                return compile_for(signature)
            except RuntimeError as error:
                if "no compiled object yet" not in str(error):
                    raise
                return compile_for(signature)

    return compile_again


@contextlib.contextmanager
def _alone(folder: str | None, name: str) -> Iterator[None]:
    """Wait while another process compiles this kernel. Its machine code is then in the cache.

    The lock only saves work. Where it cannot be had, as on some network drives, or if the other process hangs, several
    processes compile the same kernel, which does no harm.
    """
    with contextlib.ExitStack() as held:
        if folder is not None:
            with contextlib.suppress(OSError):
                file = held.enter_context(open(os.path.join(folder, f"{name}.lock"), "ab"))
                deadline = time.monotonic() + PATIENCE
                while not file_lock.try_take(file) and time.monotonic() < deadline:
                    time.sleep(0.02)
        yield


class Preparing:
    """The time in which kernels are compiled, or loaded from the cache. Training times do not include it.

    One thread compiles, and the others wait for it, so the time in which any thread is here counts once. The CPU time
    is the sum over threads.
    """

    def __init__(self) -> None:
        self.wall_seconds = self.cpu_seconds = 0.0
        self._lock = threading.Lock()
        self._inside = 0
        self._since = 0.0
        self._own = threading.local()

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._since = time.perf_counter()
        self._own.began = [*getattr(self._own, "began", ()), time.thread_time()]

    def __exit__(self, *_: object) -> None:
        *self._own.began, began = self._own.began
        with self._lock:
            self._inside -= 1
            if not self._own.began:
                self.cpu_seconds += time.thread_time() - began
            if self._inside == 0:
                self.wall_seconds += time.perf_counter() - self._since


preparing = Preparing()


def clock() -> tuple[float, float]:
    """The time, and the CPU time of this process and of its child processes that have ended, in seconds.

    The compilation of kernels, which happens once on a machine, is left out of both.
    """
    return time.perf_counter() - preparing.wall_seconds, sum(os.times()[:4]) - preparing.cpu_seconds


@functools.cache
def _warn_of_no_cache() -> None:
    """Once per process, whatever the number of kernels."""
    warnings.warn(
        "kernels are compiled at every start, which takes seconds: neither the folder of the package nor the cache of "
        "the user can be written; set the environment variable NUMBA_CACHE_DIR to a folder that can",
        RuntimeWarning,
        stacklevel=3,
    )


def frozen(array: Any, dtype: Any) -> np.ndarray:
    """Return a read-only, contiguous ndarray view of `array` as `dtype`, or a copy if a view is impossible."""
    dtype = np.dtype(dtype)
    array = np.ascontiguousarray(array).view(np.ndarray)
    if array.dtype.isnative and array.dtype.kind in "iu" and dtype.kind in "iu" and array.itemsize == dtype.itemsize:
        array = array.view(dtype)
    view: np.ndarray = array.astype(dtype, copy=False).view()
    view.flags.writeable = False
    return view


def row_parts(X: csr_array | np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`data`, `indices` and `indptr` for kernels that take sparse and dense rows; dense rows have no indices."""
    if isinstance(X, np.ndarray):
        n, d = X.shape
        return frozen(X.ravel(), np.float32), frozen([], np.uint32), frozen(np.arange(n + 1) * d, np.uint64)
    return csr_parts(X)


def csr_parts(matrix: csr_array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`data` float32, `indices` uint32, `indptr` uint64 of a canonical CSR matrix, read-only, for kernels."""
    return frozen(matrix.data, np.float32), frozen(matrix.indices, np.uint32), frozen(matrix.indptr, np.uint64)


def csr_pattern(matrix: csr_array) -> tuple[np.ndarray, np.ndarray]:
    """`indices` uint32 and `indptr` uint64 of a CSR matrix whose values are all one (labels), read-only."""
    return frozen(matrix.indices, np.uint32), frozen(matrix.indptr, np.uint64)
