"""Holds a process at the very moment of its end, so that nothing can end it: hold_at_exit.py PID

Prints a line once it holds on. The process then neither serves nor goes, whatever signal it gets, until this ends.
That is how a process looks that hangs in a driver.
"""

import ctypes
import os
import sys

PTRACE_SEIZE = 0x4206
PTRACE_CONT = 7
PTRACE_EVENT_EXIT = 6
PTRACE_O_TRACEEXIT = 1 << PTRACE_EVENT_EXIT

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def ptrace(request, pid, data):
    if libc.ptrace(request, pid, None, data) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


pid = int(sys.argv[1])
for thread in os.listdir(f"/proc/{pid}/task"):
    ptrace(PTRACE_SEIZE, int(thread), PTRACE_O_TRACEEXIT)
print("held", flush=True)
while True:
    thread, status = os.waitpid(-1, 0x40000000)  # every thread of it
    if not os.WIFSTOPPED(status):
        continue
    if status >> 16 == PTRACE_EVENT_EXIT:
        if thread == pid:
            print("at its exit", flush=True)
            sys.stdin.read()  # until whoever started this lets go
            break
        ptrace(PTRACE_CONT, thread, 0)
    elif status >> 16 == 0:
        ptrace(PTRACE_CONT, thread, os.WSTOPSIG(status))
    else:
        ptrace(PTRACE_CONT, thread, 0)
