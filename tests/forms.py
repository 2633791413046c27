"""Forms of a page as a browser would post them, without JavaScript."""

from html.parser import HTMLParser

from django.http import HttpResponse

__all__ = ["Posted", "posted_form"]

#: Name -> values, as the test client posts them.
Posted = dict[str, list[str]]


def posted_form(page: HttpResponse, field: str) -> Posted:
    """Return what the page's first form that has this field would post, without the CSRF token."""
    reader = _Forms()
    reader.feed(page.content.decode())
    return next(form for form in reader.forms if field in form)


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Posted] = []
        self._fieldsets: list[bool] = []
        #: Name of the open textarea or select, or "".
        self._textarea = self._select = ""
        self._options: list[tuple[str, bool]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        name, value = given.get("name") or "", given.get("value") or ""
        if tag == "form":
            self.forms.append({})
        elif tag == "fieldset":
            self._fieldsets.append("disabled" in given)
        elif tag == "option" and self._select:
            self._options.append((value, "selected" in given))
        if not name or not self.forms or "disabled" in given or any(self._fieldsets):
            return
        if tag == "textarea":
            self._textarea = name
            self.forms[-1][name] = [""]
        elif tag == "select":
            self._select, self._options = name, []
        elif tag == "input" and name != "csrfmiddlewaretoken" and self._is_sent(given):
            self.forms[-1].setdefault(name, []).append(value)

    @staticmethod
    def _is_sent(given: dict[str, str | None]) -> bool:
        kind = given.get("type")
        return kind != "file" and (kind not in {"checkbox", "radio"} or "checked" in given)

    def handle_data(self, data: str) -> None:
        if self._textarea:
            self.forms[-1][self._textarea][0] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "fieldset":
            self._fieldsets.pop()
        elif tag == "textarea":
            if self._textarea:
                # HTML drops the line feed after the tag; browsers send CRLF.
                text = self.forms[-1][self._textarea][0].removeprefix("\n")
                self.forms[-1][self._textarea] = [text.replace("\n", "\r\n")]
            self._textarea = ""
        elif tag == "select" and self._select:
            chosen = [value for value, is_selected in self._options if is_selected]
            self.forms[-1][self._select] = chosen or [value for value, _ in self._options[:1]]
            self._select = ""
