"""`Sides`, by the name that plugins of earlier versions know it by."""

from nmt.data.tokenizer import Sides as Sides
