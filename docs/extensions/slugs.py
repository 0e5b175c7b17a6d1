"""Names of headings, as GitHub makes them: one link serves both there and here."""


def as_on_github(title: str) -> str:
    """Letters, decimal digits, hyphens and underscores, in lower case: W2² is w2."""
    kept = (
        c for c in title.strip().lower() if c.isalpha() or c.isdecimal() or c in "-_ "
    )
    return "".join(kept).replace(" ", "-")
