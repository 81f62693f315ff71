"""node-redlock and Sallyport on one key."""

import unittest

from kit import NodeRedlock
from schedules import Schedules


class AgainstNodeRedlock(Schedules):
    LOCK = NodeRedlock


del Schedules  # abstract: it is not to be run by itself

if __name__ == "__main__":
    unittest.main()
