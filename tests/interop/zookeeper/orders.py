"""Adds one to the number in a file, under a lock that Sallyport's programs take as well: orders.py HOSTS FILE TIMES"""

import pathlib
import sys

# docs: begin
from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock


class CuratorLock(Lock):  # named as Curator's, for the default dialect
    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["lock-"]


zookeeper = KazooClient(hosts=sys.argv[1])
zookeeper.start()
file = pathlib.Path(sys.argv[2])
for _ in range(int(sys.argv[3])):
    with CuratorLock(zookeeper, "/locks/orders"):
        file.write_text(f"{int(file.read_text()) + 1}\n")
zookeeper.stop()
# docs: end
