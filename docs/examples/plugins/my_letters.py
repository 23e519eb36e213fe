"""A tokenizer (plugins.md)."""

import hashlib
import json
from dataclasses import dataclass

from nmt.data import Tokenizer, Vocabulary, read_lines
from nmt.data.tokenizer import on_one_line, printable_ids
from nmt.registry import TOKENIZERS


@TOKENIZERS.register("letters")
class Letters(Tokenizer):
    """Each character is a token; both languages share them."""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        lowercase: bool = False
        """Ignore case."""

    def __init__(self, letters, options):
        self.vocabulary, self.options = Vocabulary(letters), options
        self.source_size = self.target_size = len(self.vocabulary)

    def encode_source(self, lines):
        return [self.vocabulary.encode(line.lower() if self.options.lowercase else line) for line in lines]

    def decode_source(self, ids):
        return on_one_line("".join(self.vocabulary.tokens[i] for i in printable_ids(ids)))

    def source_tokens(self, ids):
        return [self.vocabulary.tokens[i] for i in ids]

    encode_target, decode_target, target_tokens = encode_source, decode_source, source_tokens

    def fingerprint(self):  # equal ones encode alike
        return hashlib.sha256(repr((self.vocabulary.tokens, self.options)).encode()).hexdigest()

    def save(self, folder):
        letters = self.vocabulary.tokens[3:]  # without padding, unknown and end
        (folder / "letters.json").write_text(json.dumps(letters), encoding="utf-8")

    @classmethod
    def load(cls, folder, *, options):
        return cls(json.loads((folder / "letters.json").read_text(encoding="utf-8")), options)

    @classmethod
    def train(cls, source, target, *, options, seed):
        letters = {letter for file in [*source, *target] for line in read_lines(file) for letter in line}
        if options.lowercase:
            letters = {letter.lower() for letter in letters if len(letter.lower()) == 1}
        return cls(sorted(letters), options)
