from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from support import ROOT

HERE = ROOT / "clients/python"


class GeneratedTest(unittest.TestCase):
    def test_it_is_current(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, str(HERE / "generate.py"), str(ROOT / "docs/openapi.json"), folder], check=True)
            made = sorted(Path(folder).iterdir())
            self.assertEqual(len(made), 3)
            for file in made:
                self.assertEqual(file.read_text("utf-8"), (HERE / "src/fairlead" / file.name).read_text("utf-8"),
                                 f"{file.name} is not what docs/openapi.json makes: run scripts/generate.sh")


if __name__ == "__main__":
    unittest.main()
