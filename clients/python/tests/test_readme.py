from __future__ import annotations

import os
import re
import subprocess
import sys
import unittest

from support import ROOT

PAGE = (ROOT / "clients/python/README.md").read_text("utf-8")


@unittest.skipUnless("FAIRLEAD_URL" in os.environ, "*** NOT TESTED: the example needs a server, which go test ./clients/... starts")
class ReadmeTest(unittest.TestCase):
    def test_the_first_example(self) -> None:
        program = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
        output = re.search(r"```text\n(.*?)```", PAGE, re.DOTALL)
        assert program and output
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "clients/python/src")}
        ran = subprocess.run([sys.executable, "-c", program[1]], env=environment, capture_output=True, text=True)
        self.assertEqual((ran.returncode, ran.stdout), (0, output[1]), ran.stderr)


if __name__ == "__main__":
    unittest.main()
