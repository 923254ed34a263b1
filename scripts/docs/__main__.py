"""Writes the pages and files that are made from the source: `python -m scripts.docs`, or `make docs`."""

from scripts.docs import commands, deploy, files, flags, keys, lab, plugins, tutorial

for made in (flags, plugins, keys, commands, lab, tutorial, deploy, files):
    made.write()
