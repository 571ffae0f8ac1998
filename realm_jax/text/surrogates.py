"""Recognises strings that are no Unicode text."""

import re

# JSON escapes can encode an unpaired surrogate, which UTF-8 and tokenizers cannot represent.
UNPAIRED_SURROGATE = re.compile("[\ud800-\udfff]")
