"""The wheel carries the C++ front end as tilewright/cpp: pyproject.toml can only name files inside the package."""

from __future__ import annotations

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
PARTS = ("CMakeLists.txt", "cmake/*", "include/tilewright/*", "src/*")


class WithCpp(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return  # the checkout has it
        for part in PARTS:
            for path in (HERE / "cpp").glob(part):
                goal = Path(self.build_lib) / "tilewright" / "cpp" / path.relative_to(HERE / "cpp")
                self.mkpath(str(goal.parent))
                self.copy_file(str(path), str(goal))


setup(cmdclass={"build_py": WithCpp})
