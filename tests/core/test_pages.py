import pytest
from django.contrib.messages.storage.cookie import CookieStorage
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.test import RequestFactory

from core.pages import Undo, say


@pytest.fixture
def request_with_messages(rf: RequestFactory) -> HttpRequest:
    request = rf.get("/")
    request._messages = CookieStorage(request)
    return request


def shown(request: HttpRequest) -> str:
    return render_to_string("_messages.html", {"messages": request._messages}, request)


def test_a_notice_offers_to_take_it_back(request_with_messages: HttpRequest) -> None:
    say(request_with_messages, "Priority 9000 <b>.", undo=Undo("/jobs/1/change/", {"priority": '50"00'}))

    content = shown(request_with_messages)

    assert "Priority 9000 &lt;b&gt;." in content
    assert '<form method="post" action="/jobs/1/change/">' in content
    assert '<input type="hidden" name="priority" value="50&quot;00">' in content
    assert 'role="status"' in content


def test_without_one_it_only_says(request_with_messages: HttpRequest) -> None:
    say(request_with_messages, "Done.")

    assert "<form" not in shown(request_with_messages)
