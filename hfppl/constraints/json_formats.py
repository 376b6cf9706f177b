"""What the formats of JSON strings match, as regular expressions of Python's.

Each matches only what its standard allows, and leaves out what is rare and would take more than a regular
expression, or a long one: the leap second, host names in Punycode, addresses with quotes or brackets.
"""

_HEX = "[0-9a-fA-F]"

# --- dates and times: RFC 3339

_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"  # there was no year 0000
_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DATE = (
    f"(?:{_YEAR}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)"
    f"|(?:0[13578]|1[02])-31)|{_LEAP_YEAR}-02-29)"
)
_HOUR = "(?:[01][0-9]|2[0-3])"
_TIME = rf"{_HOUR}:[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:Z|[+-]{_HOUR}:[0-5][0-9])"
_DAYS = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
_CLOCK = "(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"

# --- addresses: RFC 1123, 2673, 4291, 5321

# Two hyphens in a row would be Punycode, if at the third place.
_LABEL = "(?:[a-zA-Z0-9]{1,63}|[a-zA-Z0-9](?:-?[a-zA-Z0-9]){1,31})"
_LOCAL_CHAR = r"[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]"
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_BYTE}(?:\.{_BYTE}){{3}}"


def _ipv6() -> str:
    """Eight groups, the last two perhaps as IPv4; or fewer, with `::` in the place of at least one."""
    group = f"{_HEX}{{1,4}}"
    last_two = f"(?:{group}:{group}|{_IPV4})"
    forms = [f"(?:{group}:){{6}}{last_two}"]
    for between in range(6):
        before = f"(?:{group}(?::{group}){{0,{4 - between}}})?" if between < 5 else ""
        forms.append(f"{before}::(?:{group}:){{{between}}}{last_two}")
    return "|".join(
        [*forms, f"(?:{group}(?::{group}){{0,5}})?::{group}", f"(?:{group}(?::{group}){{0,6}})?::"]
    )


# --- URIs: RFC 3986, but for addresses in brackets

_NAME_CHAR = rf"(?:[a-zA-Z0-9._~!$&'()*+,;=-]|%{_HEX}{{2}})"
_CHAR = f"(?:{_NAME_CHAR}|[:@])"
_AUTHORITY = f"(?:(?:{_NAME_CHAR}|:)*@)?{_NAME_CHAR}*(?::[0-9]*)?"
_PATH = f"(?://{_AUTHORITY}(?:/{_CHAR}*)*|/?(?:{_CHAR}(?:{_CHAR}|/)*)?)"
_TAIL = f"(?:{_CHAR}|[/?])*"

# A string has the format if it matches all the patterns from its beginning to its end.
FORMATS = {
    "date": [_DATE],
    "time": [_TIME],
    "date-time": [f"{_DATE}T{_TIME}"],
    "duration": [f"P(?:{_DAYS}(?:T{_CLOCK})?|T{_CLOCK}|[0-9]+W)"],
    # No more than 64 characters before and 255 after the sign.
    "email": [rf"{_LOCAL_CHAR}(?:\.?{_LOCAL_CHAR}){{0,31}}@{_LABEL}(?:\.{_LABEL}){{0,3}}"],
    "hostname": [rf"{_LABEL}(?:\.{_LABEL})*", ".{1,253}"],
    "ipv4": [_IPV4],
    "ipv6": [_ipv6()],
    "uri": [rf"[a-zA-Z][a-zA-Z0-9+.-]*:{_PATH}(?:\?{_TAIL})?(?:#{_TAIL})?"],
    "uuid": [f"{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}"],
}
