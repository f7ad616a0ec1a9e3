"""Prints the options of a real engine as crates/engines/tests/recorded has them.

    python options.py llama-server HELP_FILE    reads what `llama-server --help` printed
    python options.py ollama HELP_FILE          reads what `ollama serve --help` printed
    python options.py vllm                      asks the parser of the vLLM that this Python has

One line for each option: how many values follow it (+: one or more, ?: at most one), and its names. Ollama takes no
options; the names of its variables are printed.
"""

import argparse
import pathlib
import re
import sys


def llama_server(text):
    for line in text.splitlines():
        if not re.match(r"--?[A-Za-z]", line):
            continue  # a heading, or a description that goes on
        names, rest = [], line
        while match := re.match(r"(--?[A-Za-z][\w.-]*)(,?)\s*", rest):
            names.append(match[1])
            rest = rest[match.end():]
            if not match[2]:
                break
        # Values stand between the names and the description, which begins in column 40 or on the next line.
        values = rest if len(line) <= 40 or line[39] != " " else line[len(line) - len(rest):40]
        yield len(re.sub("<[^>]*>", "X", values).split()), names


def vllm():
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    for action in make_arg_parser(FlexibleArgumentParser())._actions:
        if action.option_strings and action.help != argparse.SUPPRESS:
            counts = {None: 1, "*": "+", "+": "+", "?": "?"}
            yield counts.get(action.nargs, action.nargs), action.option_strings


if sys.argv[1] == "ollama":
    print(*re.findall(r"^\s+(OLLAMA_\w+)", pathlib.Path(sys.argv[2]).read_text(), re.M), sep="\n")
else:
    rows = vllm() if sys.argv[1] == "vllm" else llama_server(pathlib.Path(sys.argv[2]).read_text())
    for values, names in rows:
        print(values, *names)
