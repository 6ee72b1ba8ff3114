"""The examples of the README run."""

import logging
import re
import unittest
from pathlib import Path


class ReadmeTest(unittest.TestCase):
    def test_examples_run(self):
        # One asks Slidegate, which is not there.
        logging.disable()
        self.addCleanup(logging.disable, logging.NOTSET)
        text = Path(__file__).parent.parent.joinpath("README.md").read_text()
        examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        self.assertEqual(len(examples), 5)
        for example in examples:
            with self.subTest(example):
                exec(compile(example, "README.md", "exec"), {"__name__": "example"})
