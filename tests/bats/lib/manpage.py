#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compare --help with a manual page: options, both ways, and defaults.

manpage.py PAGE <HELP
"""
import re
import sys


def from_help(text):
    """name -> default, as far as --help tells one."""
    # A long left side has its help on the next line.
    text = re.sub(r"\n {20,}", "  ", text)
    found = {}
    for line in text.splitlines():
        m = re.match(r"  (?:-o |--|-\w, --)([a-z][\w-]*)[=\s]?(.*)", line)
        if m:
            d = re.search(r"\(default(:?) ?\$?([^\s;:,)]*)", m[2])
            found.setdefault(m[1], d and (":" if d[1] else d[2]))
    return found


def from_page(text):
    """name -> the item's text in one line."""
    found, names = {}, []
    for line in text.splitlines():
        if line.startswith(".It "):
            names = re.findall(r"(?:Cm | -)([a-z][\w-]+)", line)
            for name in names:
                found.setdefault(name, "")
        elif line.startswith((".Sh", ".Ss", ".El")):
            names = []
        else:
            line = re.sub(r"^\.[A-Z][a-z] ", "", line)
            for name in names:
                found[name] += " " + line
    return found


def main():
    page_text = open(sys.argv[1]).read()
    options = page_text[page_text.index(".Sh OPTIONS"):]
    options = options[:options.index("\n.Sh ", 5)]
    have, page = from_help(sys.stdin.read()), from_page(options)
    bad = []
    for name in sorted(set(have) - set(page)):
        bad.append(f"{name}: not in the page")
    for name in sorted(set(page) - set(have)):
        bad.append(f"{name}: not in --help")
    for name, default in have.items():
        if default is None or name not in page:
            continue
        text = page[name].lower()
        want = "default:" if default == ":" else f"default {default.lower()}"
        if not default:
            want = "(default)"
        if want.rstrip(".") not in text:
            bad.append(f"{name}: the page has no '{want}'")
    print("\n".join(bad))
    sys.exit(bool(bad))


main()
