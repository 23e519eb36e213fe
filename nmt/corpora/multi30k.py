"""Multi30k in English, German and Czech (task 1, raw text), as configurations read it from data/multi30k."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nmt.corpora.fetch import Sum, download, take_copy
from nmt.errors import DataError

FOLDER = Path("data/multi30k")
HOME = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
LICENCE = """Multi30k (Elliott, Frank, Sima'an and Specia 2016), https://github.com/multi30k/dataset
For non-commercial research and education; the sentences describe Flickr30k images. Please cite its authors."""
LARGEST = 16 << 20
"""Bytes of a file: 25 times those of the largest."""

# SHA-256 of the text itself, not of the .gz around it: packing again changes only the latter.
TEXT_SUMS = {
    "train.en": "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
    "train.de": "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
    "val.en": "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
    "val.de": "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
    "test_2016_flickr.en": "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
    "test_2016_flickr.de": "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
    "train.cs": "2be68b38c8d586ff4f54eb13cc6e1baaaa053695b3f070d3038303a47f2268da",
    "val.cs": "d53827e469b0a1ca8d57e9e26b2b64c4bc4b33f5479c7b03ae87ae5c882c3e33",
    "test_2016_flickr.cs": "45adb85f688de8407fddcbe1b36dca15d12aab868149b337e2576f2d6d2ff8d8",
}


def get(to: Path, *, copies: Path | None, mirror: str, languages: Sequence[str] = ("de",)) -> None:
    """Copy or download the files of English and `languages` into `to`, from the folder `copies` or from `mirror`; each
    step is printed.

    Raises DataError if a file cannot be fetched or is not the published text.
    """
    print(LICENCE)
    for name, text_sum in TEXT_SUMS.items():
        if name.rpartition(".")[2] not in ("en", *languages):
            continue
        expected = Sum("sha256", text_sum, unpack=True, largest=LARGEST)
        here = [path for path in (to / name, to / f"{name}.gz") if path.is_file()]
        if here:
            if not expected.fits(here[0]):
                raise DataError(f"{here[0]} is not the published text; move it away and run the command again")
            print(f"{here[0]}: already here")
        elif copies:
            print(f"{take_copy(copies, [f'{name}.gz', name], to, expected=expected)}: copied, sum right")
        else:
            path = download(f"{mirror}/{name}.gz", to / f"{name}.gz", expected=expected, largest=LARGEST)
            print(f"{path}: fetched, sum right")
    print(f"Multi30k is complete in {to}")
