"""What pyproject.toml cannot say: a wheel carries programs in C, which are built first and decide its kind of machine.

The programs are static, so one wheel serves every distribution of Linux. Without a compiler there is a wheel for all
machines, and plugins start a Python for each call.
"""

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).parent / "src"))
from weft.cni import build as cni
from weft.forward import build as forward

PROGRAMS = (cni.PROGRAM, cni.LAUNCHER, cni.INIT, forward.PROGRAM, forward.PATH)
MACHINES = {62: "x86_64", 183: "aarch64"}  # e_machine, of elf.h
KINDS = ("manylinux2014", "manylinux_2_17", "musllinux_1_1")  # what indexes take: PEP 600, PEP 656


class Build(build_py):
    def run(self) -> None:
        if not self.editable_mode:  # a checkout has its programs from scripts/setup.sh
            for program in PROGRAMS:
                program.main()
        super().run()


class Wheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        python, abi, platform = super().get_tag()
        client = cni.PROGRAM.built()
        if client is not None:
            number = int.from_bytes(client.read_bytes()[18:20], "little")
            if number not in MACHINES:
                raise SystemExit(f"{client} is for machine {number} of elf.h, expected one of {MACHINES}")
            platform = ".".join(f"{kind}_{MACHINES[number]}" for kind in KINDS)
        return python, abi, platform


setup(cmdclass={"build_py": Build, "bdist_wheel": Wheel})
