"""Who uses a name of a header that presets precompile has to include that header, itself or through a header of ours.

The compiler cannot tell where such a header is always in sight (cmake/sallyport_precompiled.cmake).
"""

import re

# Header: the names for which it has to be included.
NAMES = {
    "algorithm": "all_of any_of none_of find_if find_if_not sort stable_sort partial_sort nth_element count_if clamp minmax "
    "adjacent_find set_difference set_intersection shuffle rotate is_sorted binary_search max_element min_element",
    "array": "array to_array",
    "atomic": "atomic atomic_flag atomic_ref",
    "chrono": "chrono",
    "condition_variable": "condition_variable condition_variable_any",
    "deque": "deque",
    "fstream": "fstream ifstream ofstream",
    "functional": "bind bind_front function not_fn reference_wrapper",
    "list": "list",
    "map": "map multimap",
    "memory": "enable_shared_from_this make_shared make_unique shared_ptr unique_ptr weak_ptr",
    "mutex": "call_once once_flag mutex recursive_mutex scoped_lock",
    "optional": "make_optional nullopt nullopt_t optional",
    "set": "multiset set",
    "span": "as_bytes as_writable_bytes span",
    "sstream": "istringstream ostringstream stringstream",
    "stop_token": "nostopstate stop_callback stop_source stop_token",
    "string": "stoi stol stoll stoul stoull string to_string",
    "string_view": "string_view",
    "thread": "jthread this_thread thread",
    "variant": "get_if holds_alternative monostate variant visit",
    "vector": "vector",
}
# Where the standard, or both of our libraries, have a name as well.
ALSO = {
    "stop_token": ("thread", "condition_variable"),
    "string_view": ("string",),
    "mutex": ("condition_variable",),
}
HEADER_OF = {name: header for header, names in NAMES.items() for name in names.split()}
STANDARD = re.compile(r"\bstd\s*::\s*(?:ranges\s*::\s*)?(\w+)")
OTHERS = (
    (re.compile(r"\btl\s*::\s*(?:un)?expected\b"), ("tl/expected.hpp",)),
    (re.compile(r"^(?:TEST|TEST_F|TEST_P|TYPED_TEST)\(|\b(?:EXPECT|ASSERT)_[A-Z]+\(", re.MULTILINE), ("gtest/gtest.h", "gmock/gmock.h")),
)


def uses(code):
    """(position, what is used, headers of which one is enough) for each name's first use."""
    seen = set()
    for found in STANDARD.finditer(code):
        header = HEADER_OF.get(found[1])
        if header and found[1] not in seen:
            seen.add(found[1])
            yield found.start(), f"std::{found[1]}", (header, *ALSO.get(header, ()))
    for pattern, headers in OTHERS:
        found = pattern.search(code)
        if found:
            yield found.start(), found[0].strip("("), headers


def missing(included, code):
    """`uses` for which nothing in `included` is enough."""
    return [use for use in uses(code) if not included.intersection(use[2])]
