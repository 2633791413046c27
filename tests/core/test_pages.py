import pytest
from django.contrib.messages.storage.cookie import CookieStorage
from django.http import HttpRequest
from django.template import Context, Template
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


QUESTION = """{% load tidepool %}
{% ask id="stop" title=title yes="Stop it" action="/stop/" %}<p>“{{ name }}” ends.</p>{% endask %}
{{ title }}, {{ id }}"""


def test_a_question_says_what_is_lost_and_leaves_the_page_its_names() -> None:
    content = Template(QUESTION).render(
        Context({"title": "Stop <b>?", "name": "a<b>", "id": 7, "csrf_token": "secret"})
    )

    assert '<dialog class="ask" id="stop" aria-labelledby="stop-title">' in content
    assert "“a&lt;b&gt;” ends." in content
    assert ">Stop &lt;b&gt;?</h2>" in content
    assert 'action="/stop/" id="stop-form"' in content
    assert 'name="csrfmiddlewaretoken" value="secret"' in content
    assert ">Cancel</button>" in content
    assert '<button class="btn btn-danger" type="submit">Stop it</button>' in content
    assert content.endswith("Stop &lt;b&gt;?, 7")
