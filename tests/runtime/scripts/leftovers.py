"""A script that is done, and leaves something behind that its first argument names."""

import atexit
import multiprocessing
import sys
import threading
import time


def idle() -> None:
    while True:
        time.sleep(0.2)


def work() -> None:
    for number in range(20):
        print(number)
        time.sleep(0.2)
    print("done")


if sys.argv[1] == "thread":
    threading.Thread(target=idle, name="monitor").start()
elif sys.argv[1] == "process":
    multiprocessing.get_context("fork").Process(target=idle, name="helper").start()
elif sys.argv[1] == "exit":
    atexit.register(idle)
else:
    threading.Thread(target=work).start()
print("Training finished.")
