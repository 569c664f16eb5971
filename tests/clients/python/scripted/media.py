"""Reads the images that reach the scripted model."""

import base64
import binascii
import re

from .model import Failure

_DATA_URI = re.compile(r"^data:(?P<media>[\w.+-]+/[\w.+-]+);base64,(?P<data>.*)$", re.S)


def data_uri(url: str) -> tuple[str, int]:
    """Media type and size of an image given as a data URI; an address counts as size 0."""
    match = _DATA_URI.match(url)
    if match is None:
        return ("url", 0)
    return encoded(match["media"], match["data"])


def encoded(media_type: str, data: str) -> tuple[str, int]:
    """Media type and size of base64 data, refused when it does not decode."""
    try:
        return (media_type, len(base64.b64decode(data, validate=True)))
    except binascii.Error as error:
        raise Failure(400, "invalid", f"Invalid base64 image: {error}", code="invalid_base64") from error
