"""Redlock's recipe, by hand."""

import unittest

from kit import RawLock
from schedules import Schedules


class AgainstRawLock(Schedules):
    LOCK = RawLock


del Schedules  # abstract: it is not to be run by itself

if __name__ == "__main__":
    unittest.main()
